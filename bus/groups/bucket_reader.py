"""One consumer's reading of the wake-ups that are on one server, and its fetching, on a link of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.errors import InvalidSessionId
from lanebus.bus.servers.stream_reader import StreamReader
from lanebus.bus.wire.keys import check_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.groups.backlog import Backlog
    from lanebus.bus.groups.work import Work
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.topology import Connection, Route
    from lanebus.bus.wire.keys import Keys

__all__ = ("GroupReader",)


class GroupReader:
    """Gives a consumer's own unfinished work first, then what the silent left, what is due and what is new."""

    def __init__(self, route: Route, keys: Keys, left: Backlog, buckets: Sequence[int], bounds: WorkBounds) -> None:
        """`left`: of these buckets."""
        self.left, self._bounds = left, bounds
        self._buckets = {keys.wake_ups(bucket): bucket for bucket in buckets}
        self._reader = StreamReader(route, self._buckets, silence=bounds.silence)

    @property
    def has_some(self) -> bool:
        """There is, or may be, something to fetch."""
        return bool(self.left)

    async def sweep(self) -> None:
        """Look for what no wake-up told of, if it is time to. Raises Unavailable."""
        link = await self._connected()
        if self.left.is_due or not self._reader.positions:
            # Where a stream ends is asked before: what comes from then on wakes us. A stream that was deleted, or
            # lost its end, may get no ids as high as before for long, so this is asked each time.
            await self._reader.enter()
            await self.left.sweep(link)

    async def fetch(self, most: int) -> list[Work]:
        """What there is, `most` at most; empty if there is nothing. Raises Unavailable."""
        await self.sweep()
        found: list[Work] = []
        while self.left and not found:
            was_behind = self.left.is_behind
            found = await self.left.claim(await self._connected(), most)
            if was_behind and not self.left.is_behind:
                await self.sweep()
        return found

    async def wait_for_wake_up(self, seconds: float) -> None:
        """Wait until a wake-up comes, or so long, and take nothing. Raises Unavailable."""
        if self.has_some:
            return
        await self._connected()
        if not self._reader.positions:
            return  # a sweep is to come first
        for stream, entries in await self._reader.read(self._bounds.read, seconds):
            for _, fields in entries:  # as scripts/wake.lua writes them: s, session, z, position, n, order
                if len(fields) > 1 and (session := _session(fields[1])) is not None:
                    self.left.note(self._buckets[stream], session)

    async def close(self) -> None:
        """Close the link; what was fetched and is not done with stays with the consumer."""
        await self._reader.close()

    async def _connected(self) -> Connection:
        is_new = not self._reader.is_connected
        link = await self._reader.connected()
        if is_new:
            self.left.begin_again()
        return link


def _session(name: bytes) -> str | None:
    try:
        return check_session_id(name.decode())
    except (UnicodeDecodeError, InvalidSessionId):
        return None  # somebody else's
