"""Fold beside other work: pauses during long folds, and a bounded memory of what was folded."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from time import perf_counter
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

from lanebus.bus import Log

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


V = TypeVar("V")

ENTRY_BYTES = 2_048
"""What an entry takes in memory beside its JSON. Measured: 1.5 to 2.5 kB for a decoded message, 2 kB in `TURNS`."""


class RecentSessions(Generic[V]):
    """The values of the most recently used sessions. At a bound, the least recently used ones are dropped.

    The value that was kept last is never dropped by a bound, so that a large session is not read anew for each call.
    """

    def __init__(self, most: int, most_bytes: int, *, sweep_seconds: float = 60.0) -> None:
        """
        Args:
            most: maximum number of sessions.
            most_bytes: maximum number of bytes, as `keep` was told.
            sweep_seconds: shortest pause between two sweeps.
        """
        self._most, self._most_bytes, self._sweep_seconds = most, most_bytes, sweep_seconds
        self._kept: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._swept_at = 0.0
        self.size_bytes = 0
        """bytes of all kept values"""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids of the sessions, the least recently used first."""
        return iter(self._kept)

    def get(self, session: str) -> V | None:
        """Return a session's value; None if there is none."""
        found = self._kept.get(session)
        return None if found is None else found[0]

    def pop(self, session: str) -> V | None:
        """Remove a session's value and return it; None if there is none."""
        found = self._kept.pop(session, None)
        if found is None:
            return None
        self.size_bytes -= found[1]
        return found[0]

    def keep(self, session: str, value: V, size_bytes: int) -> None:
        """Keep a value as the most recently used one, in place of the session's earlier value."""
        self.pop(session)
        self._kept[session] = value, size_bytes
        self.size_bytes += size_bytes
        while len(self._kept) > 1 and (len(self._kept) > self._most or self.size_bytes > self._most_bytes):
            self.pop(next(iter(self._kept)))

    async def sweep(self, log: Log) -> None:
        """Drop the values of erased sessions, if the last sweep is `sweep_seconds` old.

        Raises:
            Unavailable: the server cannot be reached. Nothing was dropped; the next call tries again.
        """
        begun = anyio.current_time()
        if not self._kept or begun - self._swept_at < self._sweep_seconds:
            return
        for session, fingerprint in (await log.fingerprints(tuple(self._kept))).items():
            if b"erased" in fingerprint.split(b" "):
                self.pop(session)
        self._swept_at = begun
