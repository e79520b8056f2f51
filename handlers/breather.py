"""Let other tasks run during long work of the processor, such as a fold of many entries."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from time import perf_counter

import anyio.lowlevel

__all__ = ("RESTS", "Breather")

RESTS = ContextVar[Callable[[], Awaitable[None]] | None]("lanebus.rests", default=None)
"""Called at each pause, so that a server can let other clients' work go on first. None means nothing."""


class Breather:
    """Pauses the work of a task now and then, so that it does not hold up the event loop."""

    __slots__ = ("_next", "_seconds")

    def __init__(self, seconds: float = 0.005) -> None:
        """
        Args:
            seconds: how long the task works before others run.
        """
        self._seconds, self._next = seconds, perf_counter() + seconds

    @property
    def is_due(self) -> bool:
        """Whether the task has worked for long enough. Then call `pause`."""
        return perf_counter() >= self._next

    async def pause(self) -> None:
        """Let all tasks run that can."""
        await anyio.lowlevel.checkpoint()
        if (rest := RESTS.get()) is not None:
            await rest()
        self._next = perf_counter() + self._seconds
