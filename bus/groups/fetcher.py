"""Fetch work items for a consumer: run its readers, send its heartbeats, and find silent consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.backlog import Backlog
from lanebus.bus.groups.bucket_pollers import BucketPollers
from lanebus.bus.groups.bucket_reader import GroupReader
from lanebus.bus.groups.liveness import Liveness
from lanebus.bus.origin import BusOrigin
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.wire.keys import AgentBucket

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lanebus.bus.groups.group_log import GroupLog
    from lanebus.bus.groups.work import InFlight, Work
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys

__all__ = ("Fetcher",)


class Fetcher:
    """Fetches through one reader on a single server, and through one reader for each bucket on a cluster.

    The first fetch creates the readers.
    """

    def __init__(
        self, topology: Topology, keys: Keys, log: GroupLog, in_flight: InFlight, *, name: str, heartbeat: float
    ) -> None:
        self._topology, self._keys, self._log, self._in_flight = topology, keys, log, in_flight
        self._origin = BusOrigin()
        self._bounds = log.bounds
        self._liveness = Liveness(name, heartbeat)
        self._quarter = heartbeat / 4
        self._sweep_seconds = min(log.bounds.sweep_seconds, heartbeat)
        self._readers: list[GroupReader] = []
        self._pollers: BucketPollers | None = None
        self._beat_at = 0.0
        self._silent = frozenset[str]()
        self.is_answered = True
        """whether the last heartbeat that ended was answered"""
        self.fetch_fault: Unavailable | None = None
        """the error of the last poll; None if the server answered"""
        self._backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)

    async def poll(self, free: int) -> list[Work]:
        """Return up to `free` work items. If there are none, wait a short time for some (`WorkBounds.wait_seconds`).

        If the server did not answer, return an empty list after a pause.
        """
        self._origin.check_running()
        self._open()
        try:
            found = await self._poll(free)
        except Unavailable as fault:
            self.fetch_fault = fault
            for reader in self._readers:
                await reader.close()
            await self._backoff.wait()
            return []
        self.fetch_fault = None
        self._backoff.reset()
        return found

    async def beat(self) -> None:
        """Send a heartbeat if it is due, and schedule a sweep if another consumer has fallen silent.

        Raises:
            Unavailable: the server did not answer.
        """
        now = anyio.current_time()
        if now < self._beat_at:
            return
        # Set before the reply arrives, so that a concurrent call does not send another heartbeat.
        self._beat_at = now + max(self._quarter, self._bounds.first_pause_seconds)
        try:
            heartbeats = await self._log.beat(len(self._in_flight))
        except BaseException:
            self._beat_at, self.is_answered = now, False
            raise
        now = anyio.current_time()
        self._liveness.note(heartbeats, now)
        if not self.is_answered:
            self._liveness.restart(now)
            self.is_answered = True
        silent = self._liveness.silent(now)
        if silent - self._silent:
            self.sweep_by(now)
        self._silent = silent
        if (nearest := self._liveness.next_silence(now)) is not None:
            self._beat_at = min(
                self._beat_at, now + max(nearest + self._bounds.first_pause_seconds, self._bounds.first_pause_seconds)
            )

    def sweep_by(self, moment: float, places: Collection[AgentBucket] | None = None) -> None:
        """Sweep `places`, pairs of agent and bucket, no later than `moment`. None means all pairs."""
        for reader in self._readers:
            reader.backlog.sweep_by(moment, places)

    def recover(self) -> None:
        """Schedule a fetch of the work items that the server has assigned to this consumer but that this process does
        not hold."""
        for reader in self._readers:
            reader.backlog.recover()

    async def close(self) -> None:
        """Close all connections."""
        self._origin.check_running()
        if self._pollers is not None:
            await self._pollers.close()
        for reader in self._readers:
            await reader.close()
        self._pollers, self._readers = None, []

    async def _poll(self, free: int) -> list[Work]:
        try:
            await self.beat()
        except Unavailable:
            if self._pollers is None:
                raise
        seconds = min(self._beat_at - anyio.current_time(), self._bounds.wait_seconds)
        if self._pollers is not None:
            return await self._pollers.take(free, max(seconds, self._bounds.first_pause_seconds))
        (reader,) = self._readers
        found = await reader.fetch(free)
        if found:
            return found
        await reader.wait_for_wake_up(min(seconds, reader.backlog.next_sweep - anyio.current_time()))
        return await reader.fetch(free)

    def _open(self) -> None:
        if self._readers:
            return
        buckets = range(self._keys.buckets)
        if self._topology.is_one:
            self._readers = [self._reader(buckets)]
        else:
            self._readers = [self._reader((bucket,)) for bucket in buckets]
            self._pollers = BucketPollers(self._readers, self._bounds)

    def _reader(self, buckets: Sequence[int]) -> GroupReader:
        route = self._topology.route(self._keys.wake_ups(buckets[0]))
        places = [AgentBucket(bucket, agent) for bucket in buckets for agent in self._log.agents]
        backlog = Backlog(self._log, self._in_flight, self._liveness, places, sweep_seconds=self._sweep_seconds)
        return GroupReader(route, self._keys, backlog, buckets, self._bounds)
