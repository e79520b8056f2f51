"""Work that a command or a deadline can interrupt."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.handlers.agent.deadline import Deadline, Late
from lanebus.handlers.agent.decide.command_outcome import Interrupt, find_interrupt
from lanebus.handlers.agent.run import Run

__all__ = ("InterruptWatch", "until_interrupted")


class InterruptWatch:
    """Watches for a command or deadline that interrupts work, and then cancels `scope`.

    The caller runs the work in `scope` and then calls `close`.
    """

    def __init__(self, run: Run, deadline: Deadline | None = None) -> None:
        """Start watching after `RunBounds.watch_after_seconds`.

        Args:
            deadline: also interrupts the work. None means no deadline.
        """
        self._run = run
        self.scope = anyio.CancelScope()
        self.interrupt: Interrupt | Late | None = None
        self.failure: Exception | None = None
        """the error that ended the watching; None while an unreachable server is retried"""
        self._watching: list[asyncio.Task[None]] = []
        self._deadline = deadline
        # No task group: work that ends at once then costs no task, and a timer cannot start a task in a group.
        self._timer = asyncio.get_running_loop().call_later(run.bounds.watch_after_seconds, self._begin)

    async def close(self) -> None:
        """Stop watching, and wait until the watching tasks have ended. The wait is shielded from cancellation."""
        self._timer.cancel()
        for task in self._watching:
            task.cancel()
        if self._watching:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._watching)

    def _begin(self) -> None:
        self._watching.append(asyncio.create_task(self._watch()))
        if self._deadline is not None and not self._deadline.is_open:
            self._watching.append(asyncio.create_task(self._watch_time(self._deadline)))

    async def _watch(self) -> None:
        try:
            # If the work refreshes the session itself, it may have read the command before this task started.
            self.interrupt = find_interrupt(self._run.snapshot.loop_state)
            while self.interrupt is None:
                try:
                    await self._run.wait_for_wake_up()
                    self.interrupt = find_interrupt((await self._run.refresh()).loop_state)
                except Unavailable:
                    await anyio.sleep(self._run.bounds.watch_pause_seconds)
        except Exception as error:  # noqa: BLE001  # raised by the caller
            self.failure = error
        self.scope.cancel()

    async def _watch_time(self, deadline: Deadline) -> None:
        late = await deadline.wait()
        if self.interrupt is None:
            self.interrupt = late
            self.scope.cancel()


async def until_interrupted(
    run: Run, work: Callable[[], Awaitable[None]], deadline: Deadline | None = None
) -> Interrupt | Late | None:
    """Run `work` until it ends, or until a command or `deadline` interrupts it.

    Interrupted work is cancelled, and its clean-up has ended before this function returns.

    Args:
        run: the run whose session is watched for commands, after `RunBounds.watch_after_seconds`.
        work: the async function to run.
        deadline: None means no deadline.

    Returns:
        The interrupt; None if the work ended without an interrupt.

    Raises:
        Exception: the error that `work` raised, not in a group.
        BusError: the log cannot be watched. While the server cannot be reached, watching is retried and the work
            continues, because the work may have cost money and may end before the server is back.
    """
    watch = InterruptWatch(run, deadline)
    try:
        with watch.scope:
            await work()
    finally:
        await watch.close()
    if watch.failure is not None:
        raise watch.failure
    return watch.interrupt
