"""Work that a command or a deadline can interrupt."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt, find_interrupt
from lanebus.handlers.agent.run import Run

__all__ = ("until_interrupted",)


async def until_interrupted(
    run: Run, work: Callable[[], Awaitable[None]], deadline: Deadline | None = None
) -> Interrupt | Late | None:
    """Run `work` until it is done, or until a command or its deadline interrupts it.

    Interrupted work is cancelled, and has cleaned up when this returns.

    Args:
        run: its session is watched for commands, after `RunBounds.listen` seconds.
        work: the async function to run.
        deadline: None means no deadline.

    Returns:
        The interrupt; None if the work ended by itself.

    Raises:
        Exception: the error that `work` raised, not in a group.
        BusError: the log cannot be watched. While the server cannot be reached, watching is retried and the work goes
            on: it may have cost money, and may end before the server is back.
    """
    found: Interrupt | Late | None = None
    failure: Exception | None = None
    watching: list[asyncio.Task[None]] = []
    scope = anyio.CancelScope()

    async def watch() -> None:
        nonlocal found, failure
        try:
            while found is None:
                try:
                    await run.wait_for_wake_up()
                    found = find_interrupt((await run.refresh()).loop_state)
                except Unavailable:
                    await anyio.sleep(run.bounds.listen_again)
        except Exception as error:  # noqa: BLE001  # raised below
            failure = error
        scope.cancel()

    async def watch_time(deadline: Deadline) -> None:
        nonlocal found
        late = await deadline.wait()
        if found is None:
            found = late
            scope.cancel()

    def begin() -> None:
        watching.append(asyncio.create_task(watch()))
        if deadline is not None and not deadline.is_open:
            watching.append(asyncio.create_task(watch_time(deadline)))

    # No task group: a timer cannot start its tasks, and short work should not pay for any.
    timer = asyncio.get_running_loop().call_later(run.bounds.listen, begin)
    try:
        with scope:
            await work()
    finally:
        timer.cancel()
        for task in watching:
            task.cancel()
        if watching:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(watching)
    if failure is not None:
        raise failure
    return found
