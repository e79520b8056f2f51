"""A command that cannot wait for the end of a step: it ends what is being done at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import anyio

from bus.errors import Unavailable
from bus.messages.control import Abort, Steer
from handlers.agent.deadline import Deadline, Late
from handlers.agent.run import Run
from handlers.agent.standing import Standing, read_standing
from handlers.agent.status import Command

__all__ = ("Interrupt", "find_interrupt", "is_aborted", "until_interrupted")


class Interrupt(NamedTuple):
    """Why a step was ended. The command is still to be answered."""

    command: Command
    control: Abort | Steer


async def until_interrupted(
    run: Run, work: Callable[[], Awaitable[None]], deadline: Deadline | None = None
) -> Interrupt | Late | None:
    """Do some work until it is done, or until a command or its deadline ends it: `work` is cancelled then, and has
    cleaned up when this returns. None if it came to its end.

    Whatever `work` raises is raised here, and not in a group. So is what keeps the log from being watched, but for a
    server that cannot be reached: it is asked again, as the work may have cost money and be done before it is back.
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
                    await run.wait_rung()
                    found = find_interrupt(read_standing(*await run.refresh()))
                except Unavailable:
                    await anyio.sleep(run.bounds.listen_again)
        except Exception as error:  # noqa: BLE001  # raised below, by whoever waits for the work
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

    # Not in a task group: whoever is done at once does not pay for a task, and a group's may not be started by a timer.
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


def find_interrupt(standing: Standing) -> Interrupt | None:
    """The first command that cannot wait, of those that are meant for what goes on now."""
    for command in standing.commands:
        match command.control:
            case Abort(when="now", loop_id=loop_id) as abort if loop_id in {None, standing.loop_id}:
                return Interrupt(command, abort)
            case Steer(when="now", position=position) as steer if position in standing.prompts:
                return Interrupt(command, steer)
            case _:
                pass
    return None


def is_aborted(standing: Standing) -> bool:
    """Whether an abort of what goes on now, or would go on next, is still to be answered."""
    loops = {None, standing.loop_id}
    return any(isinstance(each.control, Abort) and each.control.loop_id in loops for each in standing.commands)
