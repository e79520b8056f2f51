"""Fetch sessions that have work, finish them, or give them back. A consumer's readers, heartbeats and claims.

A session has work if its newest waking entry comes after the position that the group has handled. Wake-ups only
shorten the wait. A worker reads the session's log to decide what to do. It is harmless if the log has nothing to do.
Consumer groups are for workers; a UI follows sessions instead.

    async with bus.consumer("agents", "worker-1", heartbeat=15) as consumer:
        works = await consumer.fetch(free)      at most as many as the worker has room for
        await consumer.heartbeat()              every third of `heartbeat`
        await consumer.ack(*works)              finished

Each reader has its own connection and reads the wake-ups of some buckets. In a cluster there is one for each bucket, so
that an unreachable server delays only its own buckets.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from math import inf, isfinite
from typing import TYPE_CHECKING, Self

import anyio

from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.errors import (
    InvalidArgument,
    Refused,
    SetupError,
    Unavailable,
    require_choice,
    require_count,
    require_instance,
    require_text,
)
from lanebus.bus.groups.group_log import GroupLog, InFlight, Liveness, Start, Work
from lanebus.bus.hooks import NO_REDACTION, NO_TRACING, Redaction
from lanebus.bus.servers.calls import Backoff
from lanebus.bus.servers.shared import StreamReader
from lanebus.bus.wire.keys import AgentBucket, is_session_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
    from types import TracebackType

    from lanebus.bus.groups.group_log import Fetched, Mode
    from lanebus.bus.hooks import Settlement, Tracing
    from lanebus.bus.log.log import FirstPage, WorkBounds
    from lanebus.bus.servers.calls import Calling
    from lanebus.bus.servers.connection import Connection, Pool, Route
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.keys import Keys


HEARTBEAT_SECONDS = 15.0
"""The default heartbeat timeout of a consumer."""


_HEARTBEAT = "pass seconds, as a number above 0"


class Consumer:
    """One worker in a consumer group. `Bus.consumer` creates a consumer.

    `fetch` delivers this consumer's own unfinished work first, then the work of silent consumers, delayed work that is
    due, and new work. Only one task at a time may call `fetch`; any task may call the other methods.

    A fetched session belongs to this consumer until `ack`, `nack` or `dead_letter`. If this consumer sends no heartbeat
    for `heartbeat` seconds, another consumer claims the session. If further entries wake the session in the meantime,
    it is delivered again afterwards, unless `ack` reports these entries as seen.
    """

    def __init__(
        self,
        topology: Topology,
        pool: Pool,
        keys: Keys,
        *,
        group: str,
        name: str,
        agents: Sequence[str],
        heartbeat: float,
        bounds: WorkBounds,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
        tracing: Tracing = NO_TRACING,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        """See `Bus.consumer`."""
        require_instance("heartbeat", heartbeat, (int, float), _HEARTBEAT)
        if isinstance(heartbeat, bool):
            raise InvalidArgument("heartbeat", heartbeat, _HEARTBEAT)
        require_text("owner", owner)
        require_choice("start", start, ("beginning", "now"))
        if not isfinite(heartbeat) or heartbeat <= 0:
            raise SetupError(f"consumer: heartbeat is {heartbeat}", "use more than 0 seconds")
        if not agents:
            raise SetupError("consumer: agents is empty", "pass the name of at least one agent to fetch work for")
        self.group, self.name, self.heartbeat_seconds = group, name, heartbeat
        self.agents = tuple(dict.fromkeys(agents))
        """the agents whose sessions are fetched"""
        self._log = GroupLog(
            pool,
            keys,
            group,
            name,
            agents=self.agents,
            heartbeat=heartbeat,
            bounds=bounds,
            start=start,
            owner=owner,
            first_page=first_page,
            redaction=redaction,
        )
        self._in_flight, self._tracing = InFlight(), tracing
        self._fetcher = Fetcher(topology, keys, self._log, self._in_flight, name=name, heartbeat=heartbeat)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def fetch(self, free: int) -> list[Work]:
        """Wait until sessions have work, and fetch the work items. Keep trying while the server is unreachable.

        Nothing is fetched ahead, so this consumer holds only work items that `fetch` returned. If a call is cancelled,
        the server may already have assigned work items to this consumer; the next call returns these work items first.

        Args:
            free: maximum number of work items to return; 1 or more.

        Returns:
            1 to `free` work items, each of a different session. This consumer may still hold an earlier work item of
            the same session. The server has already ended the earlier work item: another consumer claimed it, or a call
            such as `ack` finished it and is about to return.

        Raises:
            SetupError: `free` is less than 1.
            Closed: the bus is closed.
        """
        require_instance("free", free, int, "pass an integer of 1 or more")
        if free < 1:
            raise SetupError(f"fetch: free is {free}", "use 1 or more")
        began_ns = time.time_ns()
        while not (works := await self._fetcher.poll(free)):
            began_ns = time.time_ns()
        self._tracing.received(self.group, self.name, [work.session for work in works], began_ns)
        return works

    async def ack(
        self,
        *works: Work,
        seen: Mapping[str, int] | None = None,
        traces: Mapping[str, str] | None = None,
        is_repeated: bool = False,
    ) -> None:
        """Finish work items. The group gets the session again only after a later entry wakes the workers.

        Args:
            works: work items from `fetch`. A work item that another consumer has claimed is ignored.
            seen: session id → the last position that the caller read. Pass it if the caller read past `Work.position`.
                Only an entry after this position makes the session available again.
            traces: session id → the trace context of the work, from the context manager that `Tracing.processing`
                returned.
            is_repeated: True promises that the caller will call `ack` again if the server refuses. So `fetch` does not
                return the work items if the server refuses other sessions too (`Refused.is_of_server`).

        Raises:
            Refused: the server refused. The work items may be delivered again, unless `is_repeated` prevents this.
            Unavailable: the server did not answer. The work items may be delivered again.
        """
        if works:
            with self._releasing("ack", works, traces, is_repeated=is_repeated):
                await self._log.ack(works, seen or {})

    async def heartbeat(self, *works: Work) -> list[Work]:
        """Report that this consumer is alive, and return the work items that it has lost.

        For another `heartbeat` seconds no other consumer claims this consumer's work items. Call this method at least
        three times in this period. `fetch` also sends heartbeats while it waits.

        Args:
            works: work items to check. By default, all work items that were fetched and not finished.

        Returns:
            The lost work items: this consumer was silent for too long, and another consumer claimed them.

        Raises:
            Unavailable: the server did not answer.
        """
        checked = works or tuple(self._in_flight.works())
        lost = await self._log.lost(checked) if checked else []
        self._in_flight.drop(lost)
        await self._fetcher.beat()
        return lost

    @property
    def is_answered(self) -> bool:
        """Whether the server answered the latest heartbeat, not counting one in flight. True if none was sent yet."""
        return self._fetcher.is_answered

    @property
    def fetch_fault(self) -> Unavailable | None:
        """The error of the last request of `fetch`; None if the server answered the request, or if no request was
        sent."""
        return self._fetcher.fetch_fault

    async def nack(
        self,
        *works: Work,
        delay: float | None = None,
        error: str = "",
        attempts: int | None = None,
        traces: Mapping[str, str] | None = None,
    ) -> None:
        """Give work items back to the group. A session that is woken before the delay is over is delivered at once.

        Args:
            works: work items from `fetch`. A work item that another consumer has claimed is ignored.
            delay: seconds until a consumer of the group gets the work items. None delivers the work items at once, as
                if they had not been fetched: the attempt is not counted, and `Work.error` does not change.
            error: what went wrong. The next delivery has it in `Work.error`, cut to `WorkBounds.error_length`
                characters. Used only with a delay.
            attempts: number of attempts so far; None means `Work.attempt`. Used only with a delay.
            traces: as for `ack`.

        Raises:
            SetupError: `delay` is negative or not finite.
            Unavailable: the server did not answer. The work items are delivered again after `heartbeat` seconds of
                silence, or when a consumer with this name starts again.
        """
        require_text("error", error)
        require_count("attempts", attempts, is_optional=True)
        if delay is None:
            for work in works:
                await self._retry((work,), 0.0, work.error, work.attempt - 1, traces)
            return
        require_instance("delay", delay, (int, float), "pass seconds, as a number of 0 or more")
        if not isfinite(delay) or delay < 0:
            raise SetupError(f"nack: delay is {delay}", "use 0 seconds or more")
        await self._retry(works, delay, error, attempts, traces)

    async def _retry(
        self,
        works: Sequence[Work],
        delay: float,
        error: str,
        attempts: int | None,
        traces: Mapping[str, str] | None,
    ) -> None:
        tried = [(work, work.attempt if attempts is None else attempts) for work in works]
        if tried:
            with self._releasing("nack", works, traces):
                await self._log.nack(tried, delay, error)
        self._fetcher.sweep_by(anyio.current_time() + delay, {work.place for work in works})

    async def dead_letter(
        self,
        work: Work,
        *,
        reason: str,
        attempts: int | None = None,
        raw: bytes = b"",
        seen: int = 0,
        traces: Mapping[str, str] | None = None,
    ) -> str:
        """Turn a work item into a dead letter. The work item is not delivered again unless the letter is redriven.

        Args:
            work: a work item from `fetch`.
            reason: why the work item is given up, in words for people; cut to `WorkBounds.reason_length` characters.
            attempts: number of attempts so far; None means `Work.attempt`.
            raw: the data that caused the failure, such as an entry; cut to `WorkBounds.raw_bytes` bytes.
            seen: the last position read in the session, if it is above `Work.position`.
            traces: as for `ack`.

        Returns:
            The id of the letter for `Bus.dead_letters`. "" if another consumer has claimed the work item, or if the
            session was erased.

        Raises:
            Unavailable: as for `nack`.
        """
        require_text("reason", reason)
        require_count("attempts", attempts, is_optional=True)
        require_instance("raw", raw, bytes, "pass bytes")
        require_count("seen", seen)
        with self._releasing("dead_letter", (work,), traces):
            return await self._log.dead_letter(work, reason, work.attempt if attempts is None else attempts, raw, seen)

    async def deregister(self) -> int:
        """Close this consumer, give back all work items that are assigned to its name, and forget the name.

        Call `deregister` if the name will not be used again. A worker that will restart under the same name only needs
        `close`; it continues its own work after the restart.

        Returns:
            The number of work items that were given back.

        Raises:
            Unavailable: the server did not answer. Other consumers claim the work items after `heartbeat` seconds.
        """
        await self.close()
        self._in_flight.drop(self._in_flight.works())
        return await self._log.deregister()

    async def close(self) -> None:
        """Close the connections. Unfinished work items stay assigned to this consumer's name."""
        await self._fetcher.close()

    @contextmanager
    def _releasing(
        self,
        settlement: Settlement,
        works: Sequence[Work],
        traces: Mapping[str, str] | None,
        *,
        is_repeated: bool = False,
    ) -> Generator[None, None, None]:
        """Hold work items until the block ends, so that a concurrent sweep does not fetch the same work items again.

        If the block raises, its outcome is unknown. The next fetch then asks the server which work items this consumer
        has. If the server refused and the caller repeats the block, the work items are held on.
        """
        sessions, is_held = [work.session for work in works], False
        try:
            with self._tracing.settling(settlement, self.group, sessions, traces or {}):
                yield
        except BaseException as error:
            is_held = is_repeated and isinstance(error, Refused) and error.is_of_server
            if not is_held:
                self._fetcher.recover()
            raise
        finally:
            if not is_held:
                self._in_flight.drop(works)


# Fetch work items for a consumer: run its readers, send its heartbeats, and find silent consumers.


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
