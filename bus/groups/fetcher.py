"""How a consumer comes by its work: its readers, its signs of life, and who fell silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.backlog import Backlog
from lanebus.bus.groups.bucket_pollers import BucketPollers
from lanebus.bus.groups.bucket_reader import GroupReader
from lanebus.bus.groups.liveness import Liveness
from lanebus.bus.servers.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lanebus.bus.groups.group_log import GroupLog
    from lanebus.bus.groups.work import InFlight, Work
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys

__all__ = ("Fetcher",)


class Fetcher:
    """One reader where one server holds all, one for each bucket of a cluster. Opened when it is first needed."""

    def __init__(
        self, topology: Topology, keys: Keys, log: GroupLog, hand: InFlight, *, name: str, heartbeat: float
    ) -> None:
        self._topology, self._keys, self._log, self._hand = topology, keys, log, hand
        self._bounds = log.bounds
        self._liveness = Liveness(name, heartbeat)
        self._quarter = heartbeat / 4
        self._sweep_seconds = min(log.bounds.sweep, heartbeat)
        self._readers: list[GroupReader] = []
        self._pumps: BucketPollers | None = None
        self._beat_at = 0.0
        self._silent = frozenset[str]()
        self._was_away = False
        self._backoff = Backoff(self._bounds.shortest, self._bounds.longest_pause)

    async def turn(self, free: int) -> list[Work]:
        """What there is, or what comes within a short while; `free` at most."""
        self._open()
        try:
            found = await self._turn(free)
        except Unavailable:
            for reader in self._readers:
                await reader.close()
            await self._backoff.wait()
            return []
        self._backoff.reset()
        return found

    async def beat(self) -> None:
        """Give a sign of life, if it is time to; sweep if another consumer has fallen silent.

        Raises:
            Unavailable: the server cannot be reached.
        """
        now = anyio.current_time()
        if now < self._beat_at:
            return
        self._beat_at = now + max(
            self._quarter, self._bounds.shortest
        )  # before the answer, for who else beats meanwhile
        try:
            signs = await self._log.beat(len(self._hand))
        except BaseException:
            self._beat_at, self._was_away = now, True
            raise
        now = anyio.current_time()
        self._liveness.note(signs, now)
        if self._was_away:
            self._liveness.begin_again(now)
            self._was_away = False
        silent = self._liveness.silent(now)
        if silent - self._silent:
            self.look_by(now)
        self._silent = silent
        if (nearest := self._liveness.next_silence(now)) is not None:
            self._beat_at = min(self._beat_at, now + max(nearest + self._bounds.shortest, self._bounds.shortest))

    def look_by(self, moment: float, buckets: Collection[int] | None = None) -> None:
        """Sweep at that moment, some buckets or all."""
        for reader in self._readers:
            reader.left.look_by(moment, buckets)

    def begin_again(self) -> None:
        """Look for what this consumer has and does not know of."""
        for reader in self._readers:
            reader.left.begin_again()

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
        seconds = min(self._beat_at - anyio.current_time(), self._bounds.look)
        if self._pumps is not None:
            return await self._pumps.take(free, max(seconds, self._bounds.shortest))
        (reader,) = self._readers
        found = await reader.fetch(free)
        if found:
            return found
        await reader.wait_for_wake_up(min(seconds, reader.left.next_look - anyio.current_time()))
        return await reader.fetch(free)

    def _open(self) -> None:
        if self._readers:
            return
        buckets = range(self._keys.buckets)
        if self._topology.is_one:
            self._readers = [self._reader(buckets)]
        else:
            self._readers = [self._reader((bucket,)) for bucket in buckets]
            self._pumps = BucketPollers(self._readers, self._bounds)

    def _reader(self, buckets: Sequence[int]) -> GroupReader:
        route = self._topology.route(self._keys.wake_ups(buckets[0]))
        left = Backlog(self._log, self._hand, self._liveness, buckets, sweep_seconds=self._sweep_seconds)
        return GroupReader(route, self._keys, left, buckets, self._bounds)
