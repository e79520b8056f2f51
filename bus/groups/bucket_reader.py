"""Read the wake-ups of some buckets and fetch work items from these buckets. Each reader has its own connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.servers.stream_reader import StreamReader
from lanebus.bus.wire.keys import AgentBucket, is_session_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.groups.backlog import Backlog
    from lanebus.bus.groups.work import Work
    from lanebus.bus.log.work_bounds import WorkBounds
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.keys import Keys

__all__ = ("GroupReader",)


class GroupReader:
    """Fetches the work items of some buckets on one server.

    The consumer's own unfinished work items come first, then work items of silent consumers, then due and new work
    items.
    """

    def __init__(self, route: Route, keys: Keys, backlog: Backlog, buckets: Sequence[int], bounds: WorkBounds) -> None:
        """
        Args:
            route: route to the server that holds the buckets.
            backlog: the count of the work items in the same buckets.
        """
        self.backlog, self._bounds = backlog, bounds
        self._buckets = {keys.wake_ups(bucket): bucket for bucket in buckets}
        self._reader = StreamReader(route, self._buckets, silence=bounds.silence_seconds)

    @property
    def has_work(self) -> bool:
        """Whether a wake-up or a sweep has announced work items that were not fetched yet."""
        return bool(self.backlog)

    async def sweep(self) -> None:
        """Find work items that no wake-up announced, if a sweep is due. Raises Unavailable."""
        connection = await self._connected()
        if self.backlog.is_due or not self._reader.is_entered:
            # Read the end of each stream before each sweep, so that wake-ups after the sweep are not missed. The
            # position of an earlier sweep is not enough: a stream that was deleted or lost its end may get no id above
            # that position for a long time.
            await self._reader.enter()
            await self.backlog.sweep(connection)

    async def fetch(self, limit: int) -> list[Work]:
        """Return up to `limit` work items without waiting for more. Raises Unavailable."""
        await self.sweep()
        found: list[Work] = []
        while self.backlog and not found:
            was_recovering = self.backlog.is_recovering
            found = await self.backlog.claim(await self._connected(), limit)
            if not found and was_recovering and not self.backlog.is_recovering:
                await self.sweep()  # with found work no await may follow, or a cancellation or an error would lose it
        return found

    async def wait_for_wake_up(self, seconds: float) -> None:
        """Wait for a wake-up, at most `seconds`, without fetching. Raises Unavailable."""
        if self.has_work:
            return
        await self._connected()
        if not self._reader.is_entered:
            return  # without known positions a sweep must come first
        for stream, entries in (await self._reader.read(self._bounds.read_wake_ups, seconds)).items():
            for _, fields in entries:  # as scripts/wake.lua writes them: s, session, z, position, n, order, a, agent
                named = dict(zip(fields[::2], fields[1::2], strict=False))
                session, agent = named.get(b"s", b""), named.get(b"a", b"").decode(errors="replace")
                if is_session_id(session):
                    self.backlog.note(AgentBucket(self._buckets[stream], agent), session.decode())

    async def close(self) -> None:
        """Close the connection. Unfinished work items stay assigned to the consumer."""
        await self._reader.close()

    async def _connected(self) -> Connection:
        is_new = not self._reader.is_connected
        connection = await self._reader.connected()
        if is_new:
            self.backlog.recover()
        return connection
