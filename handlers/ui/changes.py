"""Which sessions have new entries, read once for all clients from the change notices."""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import NamedTuple

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.activity import Activity
from lanebus.handlers.ui.bounds import UiBounds

__all__ = ("ChangedSessions", "Changes")


class ChangedSessions(NamedTuple):
    """What one reading found."""

    positions: Mapping[str, int]
    """the last position of each changed session"""
    is_complete: bool
    """whether all changed sessions are named. If not, the client lists the sessions again"""


class Changes:
    """The changed sessions of a bus. The server is asked only while a client waits, by one client for all."""

    def __init__(self, bus: Bus, bounds: UiBounds) -> None:
        self._bus, self._pause = bus, bounds.changes_seconds
        self._last: Activity | None = None
        self._found, self._count = deque[ChangedSessions](maxlen=bounds.changes_kept), 0
        self._beginning, self._reading = anyio.Lock(), anyio.Lock()

    async def follow(self) -> AsyncGenerator[ChangedSessions]:
        """Yield a first change that names nothing, and then each change. A client that lists the sessions after the
        first change misses none.

        Raises:
            BusError: the first reading failed. Later failures are retried.
        """
        async with self._beginning:
            if self._last is None:
                self._last = await self._bus.activity()
        count = self._count
        yield ChangedSessions({}, is_complete=True)
        while True:
            async with self._reading:  # one client reads for all others, until there is a change
                while self._count == count:
                    await anyio.sleep(self._pause)
                    await self._read()
                missed, kept = self._count - count, len(self._found)
                news = [*self._found][-min(missed, kept) :]
                count = self._count
            if missed > kept:
                yield ChangedSessions({}, is_complete=False)
            for change in news:
                yield change

    async def _read(self) -> None:
        try:
            now = await self._bus.activity(self._last)
        except Unavailable:
            return  # the next reading begins where the last one ended
        before, self._last = self._last, now
        new = now.published - (0 if before is None else before.published)
        if new:
            # Fewer if a bucket had more publishes than are named, and negative if the server lost its end.
            positions = {session: span.last for session, span in now.sessions.items()}
            self._found.append(ChangedSessions(positions, is_complete=now.named >= new > 0))
            self._count += 1
