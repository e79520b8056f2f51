"""How a consumer comes by its work: its readers, its signs of life, and who fell silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from bus.errors import Unavailable
from bus.group_pumps import Pumps
from bus.group_reader import GroupReader

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from bus.connection import Topology
    from bus.group_log import GroupLog
    from bus.keys import Keys
    from bus.work import Hand, Work

__all__ = ("Taking",)

LOOK_SECONDS = 0.5
"""How often a consumer that waits looks up, at least."""

SHORTEST_SECONDS = 0.01

GAP_SECONDS = 0.02
"""Whoever comes back within this time goes on waiting. To look at all streams first would cost three reads between any
two pointers; what several streams got meanwhile, beyond the room there is, is handed back."""

MANY = 16
"""With room for less nothing is left to chance."""

LONGEST_PAUSE_SECONDS = 0.5
"""Between two tries to reach a lost server."""


class Taking:
    """One reader where one server holds all, one for each bucket of a cluster. Opened when it is first needed."""

    def __init__(self, topology: Topology, keys: Keys, log: GroupLog, hand: Hand, heartbeat: float) -> None:
        self._topology, self._keys, self._log, self._hand = topology, keys, log, hand
        self._quarter = heartbeat / 4
        self._readers: list[GroupReader] = []
        self._pumps: Pumps | None = None
        self._beat_at = 0.0
        self._pause = SHORTEST_SECONDS
        self._turned_at = -GAP_SECONDS

    def begin(self, free: int) -> None:
        """Somebody has room for so many, maybe after a long time without."""
        self._open()
        is_soon = anyio.current_time() - self._turned_at < GAP_SECONDS
        if self._pumps is None and not (is_soon and free >= MANY):
            self._readers[0].look_again()

    async def turn(self, free: int) -> list[Work]:
        """What there is, or what comes within a short while; more than `free` in rare cases, see `GroupReader.wait`."""
        try:
            found = await self._turn(free)
        except Unavailable:
            for reader in self._readers:
                await reader.close()
            await anyio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
            return []
        self._pause = SHORTEST_SECONDS
        self._turned_at = anyio.current_time()
        return found

    async def beat(self) -> None:
        """Give a sign of life, if it is time to; look through the buckets if another consumer has fallen silent.

        Raises:
            Unavailable: the server cannot be reached.
        """
        now = anyio.current_time()
        if now < self._beat_at:
            return
        # What the silent one was given in its last quarter gets old enough only later, so it is told of for longer.
        beat = await self._log.beat(self._hand.sessions(), self._quarter + 1)
        wait = min(self._quarter, LOOK_SECONDS) if beat.silent else self._quarter
        if beat.nearest is not None:  # it may be silent then, and is not before
            wait = min(wait, beat.nearest + SHORTEST_SECONDS)
        self._beat_at = now + max(wait, SHORTEST_SECONDS)
        if beat.silent:
            self.look_by(now)

    def look_by(self, moment: float, buckets: Collection[int] | None = None) -> None:
        """Look at that moment for work that is not new, in some buckets or all."""
        for reader in self._readers:
            reader.left.look_by(moment, buckets)

    async def flush(self) -> None:
        """Acknowledge what rings nobody, where nothing may be taken for long. Raises Unavailable."""
        if self._pumps is None:
            for reader in self._readers:
                await reader.flush()

    async def close(self) -> None:
        """Close all links."""
        if self._pumps is not None:
            await self._pumps.close()
        for reader in self._readers:
            await reader.close()
        self._pumps, self._readers = None, []

    async def _turn(self, free: int) -> list[Work]:
        try:
            await self.beat()
        except Unavailable:
            if self._pumps is None:
                raise
        seconds = min(self._beat_at - anyio.current_time(), LOOK_SECONDS)
        if self._pumps is not None:
            return await self._pumps.take(free, max(seconds, SHORTEST_SECONDS))
        (reader,) = self._readers
        found = await reader.fetch(free)
        if found or reader.left.is_behind:  # nothing that is new comes before what was pending with us
            return found
        return await reader.wait(min(seconds, reader.left.next_look - anyio.current_time()), free)

    def _open(self) -> None:
        if self._readers:
            return
        buckets = range(self._keys.buckets)
        if self._topology.is_one:
            self._readers = [self._reader(buckets)]
        else:
            self._readers = [self._reader((bucket,)) for bucket in buckets]
            self._pumps = Pumps(self._readers)

    def _reader(self, buckets: Sequence[int]) -> GroupReader:
        route = self._topology.route(self._keys.index(buckets[0]))
        return GroupReader(route, self._keys, self._log, self._hand, buckets)
