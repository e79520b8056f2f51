"""Work that a command or a deadline can interrupt: the watch, the deadline, the clock, and the end of a task."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.handlers.agent.run import Run
from lanebus.handlers.agent.turn.decision import Interrupt, find_interrupt

# The clock of an agent's loop. Tests pass a clock of their own, so that they need not wait.


class Clock(Protocol):
    """A source of time that can also wait."""

    def time(self) -> float:
        """Return seconds UTC. The clock may be set forward or back."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. The wait can be cancelled."""
        ...


class SystemClock:
    """The clock of the machine."""

    def time(self) -> float:
        """See `Clock`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await anyio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


# The deadline of a running call: the time limit of its loop, or the longest silence of the call.


class Late(NamedTuple):
    """Why a call was cut."""

    text: str
    is_limit: bool
    """whether the loop's time limit was reached. False means that the call was silent for too long"""


class Deadline:
    """The time limit and the longest silence of one call."""

    def __init__(
        self, clock: Clock, *, left: float | None, reached: str = "", silence: float | None = None, name: str = ""
    ) -> None:
        """
        Args:
            left: seconds until the loop's time limit; None means no limit.
            reached: the text for a reached limit.
            silence: maximum number of seconds between two calls of `restart_silence`; None means no limit.
            name: subject of the text for a silence, such as "the model".
        """
        self._clock, self._silence, self._reached, self._name = clock, silence, reached, name
        self._last_activity = clock.monotonic()
        self._ends = None if left is None else self._last_activity + left

    @property
    def is_open(self) -> bool:
        """Whether the call may run forever: its time and its silence are unlimited."""
        return self._ends is None and self._silence is None

    def restart_silence(self) -> None:
        """Record that the call is active, so that its silence is counted from now."""
        self._last_activity = self._clock.monotonic()

    async def wait(self) -> Late:
        """Wait until the deadline and return its reason. Call this only if `is_open` is false."""
        while True:
            now = self._clock.monotonic()
            if self._ends is not None and now >= self._ends:
                return Late(self._reached, is_limit=True)
            if self._silence is not None and now >= self._last_activity + self._silence:
                return Late(f"{self._name} said nothing for {self._silence:g} s", is_limit=False)
            ends = [] if self._ends is None else [self._ends]
            if self._silence is not None:
                ends.append(self._last_activity + self._silence)
            await self._clock.sleep(min(ends) - now)


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


T = TypeVar("T")

_log = logging.getLogger(__name__)


async def end_task(task: asyncio.Future[T], name: str, *, seconds: float) -> bool:
    """Cancel a task and wait until the task has ended. Return whether it ended in time.

    The task is cancelled once, not at every await as a cancel scope would, so it can await its clean-up. The wait is
    shielded from cancellation. A task that does not end in time is cancelled once more and abandoned, so code that
    ignores cancellation does not block the caller.

    Args:
        task: a task that runs in no cancel scope of the caller.
        name: name of the code that the task runs, for the log.
        seconds: longest wait.
    """
    if not task.done():
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,), timeout=seconds)
    if task.done():
        return True
    _log.warning("%s did not end after it was cancelled, and is abandoned", name)
    task.cancel()
    task.add_done_callback(_forget)
    return False


def _forget(task: asyncio.Future[T]) -> None:
    """Retrieve the task's exception, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
