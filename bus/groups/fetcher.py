"""Fetch work items for a consumer: run its readers, send its heartbeats, and find silent consumers.

Each reader has its own connection and reads the wake-ups of some buckets. In a cluster there is one for each bucket, so
that an unreachable server delays only its own buckets.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import anyio

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.group_log import Liveness
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.servers.stream_reader import StreamReader
from lanebus.bus.wire.keys import AgentBucket, is_session_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lanebus.bus.groups.group_log import Fetched, GroupLog, InFlight, Mode, Work
    from lanebus.bus.log.log import WorkBounds
    from lanebus.bus.servers.calls import Calling
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys


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


class BucketPollers:
    """Runs one task for each reader. A task always waits for wake-ups, but fetches only while `take` waits for more
    work items."""

    def __init__(self, readers: Sequence[GroupReader], bounds: WorkBounds) -> None:
        self._bounds = bounds
        self._recovering = set(readers)
        self._room = self._in_flight = 0
        self._is_taking = False
        self._has_room, self._all_recovered, self._has_found = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._found: list[Work] = []
        self._failure: Exception | None = None
        # Not a task group: the tasks run on between calls of `take`.
        self._tasks = [asyncio.create_task(self._run(reader)) for reader in readers]

    async def take(self, limit: int, seconds: float) -> list[Work]:
        """Wait at most `seconds` for work items that readers fetch, and return at most `limit` work items.

        If a fetch is still in flight when the call returns, the next call returns its work items as part of its own
        `limit`. If an error ended the task of a reader, raises this error.
        """
        self._is_taking = True
        self._set_room(limit - len(self._found) - self._in_flight)
        try:
            with anyio.move_on_after(seconds):
                await self._has_found.wait()
        finally:
            self._is_taking = False
            self._set_room(0)
        if self._failure is not None:
            raise self._failure
        self._has_found.clear()
        found, self._found = self._found, []
        return found

    async def close(self) -> None:
        """Cancel the tasks of all readers and close the readers."""
        with anyio.CancelScope(shield=True):
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def _set_room(self, room: int) -> None:
        self._room = room
        if room > 0:
            self._has_room.set()
        else:
            self._has_room.clear()

    async def _run(self, reader: GroupReader) -> None:
        backoff = Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)
        try:
            while True:
                try:
                    await self._poll(reader)
                    backoff.reset()
                except Unavailable:
                    self._set_recovered(reader)  # the other buckets do not wait for an unreachable bucket
                    await reader.close()
                    await backoff.wait()
        except Exception as error:  # noqa: BLE001  # no caller awaits this task, so `take` raises the error again
            self._failure = error
            self._has_found.set()
        finally:
            await reader.close()

    async def _poll(self, reader: GroupReader) -> None:
        await reader.sweep()
        if not reader.backlog.is_recovering:  # unfinished work of all buckets comes before new work
            self._set_recovered(reader)
            await self._all_recovered.wait()
            await reader.wait_for_wake_up(
                min(self._bounds.cluster_wait_seconds, reader.backlog.next_sweep - anyio.current_time())
            )
        if not reader.has_work:
            return
        while self._room < 1:  # all readers share the room, so other readers may have used it up
            await self._has_room.wait()
        limit = max(self._room // 4, 1)  # leaves room for the other readers
        self._in_flight += limit
        self._set_room(self._room - limit)
        found: list[Work] = []
        try:
            found = await reader.fetch(limit)
        finally:
            self._in_flight -= limit
            if self._is_taking:
                self._set_room(self._room + limit - len(found))
        if found:
            self._found += found
            self._has_found.set()

    def _set_recovered(self, reader: GroupReader) -> None:
        self._recovering.discard(reader)
        if not self._recovering:
            self._all_recovered.set()


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


# Wake-ups announce new work. A sweep finds all other work: sessions woken before this consumer listened, delayed work
# that is due, work items of silent consumers, and work items that were delivered in a reply that never arrived.


class Backlog:
    """Counts the waiting work items of some buckets from sweeps and wake-ups, and schedules the sweeps."""

    def __init__(
        self,
        log: GroupLog,
        in_flight: InFlight,
        liveness: Liveness,
        places: Iterable[AgentBucket],
        *,
        sweep_seconds: float,
    ) -> None:
        self._log, self._in_flight, self._liveness, self._sweep_seconds = log, in_flight, liveness, sweep_seconds
        self._available: dict[AgentBucket, int] = {}
        self._sweep_at = dict.fromkeys(places, -inf)
        self._holders: dict[AgentBucket, tuple[str, ...]] = {}
        self._named: dict[AgentBucket, dict[str, None]] = {}
        self._losses, self._recovered = 1, 0
        """number of replies with work items that may be lost, and the number of such losses from which the consumer has
        recovered. The first loss stands for an earlier process that may have left work items under this name"""
        self._recover_at = -inf

    def __bool__(self) -> bool:
        return bool(self._available)

    @property
    def is_recovering(self) -> bool:
        """Whether this consumer may have work items at the server that this process does not know."""
        return self._recovered < self._losses

    @property
    def next_sweep(self) -> float:
        """Time of the next sweep, on the event loop's clock."""
        return min(self._sweep_at.values())

    @property
    def is_due(self) -> bool:
        """Whether a bucket has to be swept now."""
        return anyio.current_time() >= self.next_sweep

    def note(self, place: AgentBucket, session: str) -> None:
        """Count a wake-up and remember its session. Ignore a wake-up for an agent that the consumer does not serve."""
        if place not in self._sweep_at:
            return
        self._available[place] = self._available.get(place, 0) + 1
        named = self._named.setdefault(place, {})
        if len(named) < self._log.bounds.named_sessions:
            named[session] = None

    def sweep_by(self, moment: float, places: Collection[AgentBucket] | None = None) -> None:
        """Sweep `places`, pairs of agent and bucket, no later than `moment`. None means all pairs."""
        for place, at in self._sweep_at.items():
            if moment < at and (places is None or place in places):
                self._sweep_at[place] = moment

    def recover(self) -> None:
        """Schedule another fetch of this consumer's own work items, because a reply may have been lost.

        A fetch that is already in flight does not end the recovery.
        """
        self._losses += 1
        self._available.clear()
        self.sweep_by(-inf)

    async def sweep(self, connection: Calling) -> None:
        """Count the work items of every bucket whose sweep is due. Raises Unavailable."""
        now = anyio.current_time()
        if now < self.next_sweep:
            return
        due = [place for place, at in self._sweep_at.items() if at <= now + self._log.bounds.sweep_window_seconds]
        # Set before the reply arrives: `nack` may ask for an earlier sweep in the meantime, or may lose its own reply.
        losses, is_recovering = self._losses, self.is_recovering
        self._sweep_at.update(dict.fromkeys(due, now + self._sweep_seconds))
        silent = sorted(self._liveness.silent(now))
        swept = await self._log.fetch(
            connection,
            dict.fromkeys(due, 0),
            self._held(due),
            mode="own" if is_recovering else "sweep",
            silent=dict.fromkeys(due, silent),
            named={},
        )
        for place, fetched in swept.items():
            self._holders[place] = fetched.holders
            self._liveness.note_holders(fetched.holders, now)
            self._note_remaining(place, fetched, now)
        self._end_recovery(losses)
        if not is_recovering and now >= self._recover_at and any(fetched.has_unheld for fetched in swept.values()):
            # At most once per sweep period: a work item that can never be fetched would start a recovery in every
            # sweep.
            self._recover_at = now + self._sweep_seconds
            self.recover()

    async def claim(self, connection: Calling, limit: int) -> list[Work]:
        """Fetch up to `limit` of the counted work items. Raises Unavailable."""
        limits = self._take_turns(limit)
        if not limits:
            return []
        now = anyio.current_time()
        silent = self._liveness.silent(now)
        silent_holders = {place: sorted(silent & {*self._holders.get(place, ())}) for place in limits}
        losses = self._losses
        mode: Mode = "own" if self.is_recovering else ""
        held = self._held(limits) if mode else {}
        named = {place: tuple(self._named.pop(place, ()))[:count] for place, count in limits.items()}
        replies = await self._log.fetch(
            connection, limits, held, mode=mode, silent=silent_holders, named=named, tenants=self._in_flight.tenants()
        )
        works: list[Work] = []
        for place, fetched in replies.items():
            works += fetched.works
            self._available.pop(place, None)  # re-inserted last if it has more, so that all take turns
            self._note_remaining(place, fetched, now)
        self._end_recovery(losses)
        return self._in_flight.add(works)

    def _take_turns(self, limit: int) -> dict[AgentBucket, int]:
        """Divide `limit` among agents and buckets: one work item for each in turn, as long as work items are left."""
        limits: dict[AgentBucket, int] = {}
        left = dict(self._available)
        while left and limit > 0:
            for place in list(left)[:limit]:
                limits[place] = limits.get(place, 0) + 1
                limit -= 1
                left[place] -= 1
                if left[place] <= 0:
                    del left[place]
        return limits

    def _note_remaining(self, place: AgentBucket, fetched: Fetched, now: float) -> None:
        """Note the work items that are left. An agent and bucket that are already known keep their turn."""
        if fetched.remaining:
            self._available[place] = fetched.remaining
        else:
            self._available.pop(place, None)
        if fetched.due:  # 0 means that the delayed work is due now and was counted
            self.sweep_by(now + fetched.due, (place,))

    def _end_recovery(self, losses: int) -> None:
        """If no counted work is left, mark the first `losses` losses as recovered."""
        if self._recovered < losses and not self._available:
            self._recovered = losses
            self.sweep_by(-inf)

    def _held(self, places: Iterable[AgentBucket]) -> dict[AgentBucket, tuple[str, ...]]:
        return {place: self._in_flight.sessions(place) for place in places}
