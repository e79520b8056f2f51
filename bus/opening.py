"""Open a bus, with its options and bounds, and look into it: counters, the state of the servers, raw reads of keys.

`Opening` is what `Bus.open` returns: the bus for an `async with` block. Other uses raise an error that says so.

Each part of the bus defines its own frozen dataclass of bounds, periods and limits, with defaults. Tests pass tiny
values, because the bus must behave the same at any bound.

`BusMonitor` is for monitoring, `Inspector` for tools that verify a log. What the inspector reads is returned as stored,
not parsed or checked, and is read without the log's own scripts. Long values are read in pages, so memory use is
bounded by one page.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Never, TypeVar, cast

import anyio

from lanebus.bus.archive.archive import ArchiveBounds
from lanebus.bus.concurrency import BusOrigin
from lanebus.bus.embedded.server import open_server
from lanebus.bus.errors import (
    Closed,
    InvalidArgument,
    LoginRefused,
    NotEntered,
    OldNamespace,
    Refused,
    SetupError,
    Unavailable,
    UnsafeServer,
    check_bounds,
    require_count,
    require_instance,
    require_methods,
    require_text,
)
from lanebus.bus.following.subscription import HubBounds
from lanebus.bus.groups.status import ActivityBounds
from lanebus.bus.log.log import LogBounds, WorkBounds
from lanebus.bus.log.namespace import SCHEMA, begin_namespace
from lanebus.bus.log.reading import stream_pages
from lanebus.bus.media.store import MediaBounds, RedisMedia, SharedStore
from lanebus.bus.messages.base import Lane
from lanebus.bus.previews import LiveBounds
from lanebus.bus.publishing.outbox import PublishBounds
from lanebus.bus.servers.calls import ConnectionBounds, call_all
from lanebus.bus.servers.health import (
    ServerVersion,
    check_durability,
    loss_risks,
    server_infos,
    warn_of_advisories,
    warn_of_transport,
)
from lanebus.bus.wire.codec import position_of
from lanebus.bus.wire.keys import DEFAULT_AGENT, Keys, check_namespace, is_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from anyio.abc import TaskGroup

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.following.hub import Hub
    from lanebus.bus.groups.wake_ups import WakeUps
    from lanebus.bus.log.log import Log, SessionHead
    from lanebus.bus.log.namespace import LossKind
    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.publishing.publisher import PublishCounts, Publisher
    from lanebus.bus.servers.calls import Reply
    from lanebus.bus.servers.connection import Pool, Route
    from lanebus.bus.servers.topology import Topology
    from lanebus.bus.wire.codec import Entry


T_co = TypeVar("T_co", covariant=True)


class Opening(AbstractAsyncContextManager[T_co], Generic[T_co]):
    """A resource that is open for the length of an `async with` block."""

    def __init__(self, block: AbstractAsyncContextManager[T_co], call: str) -> None:
        """
        Args:
            block: opens and closes the resource.
            call: the call that made this object, for the error, such as "Bus.open()".
        """
        self._block, self._call, self._is_entered = block, call, False
        self._origin: BusOrigin | None = None

    async def __aenter__(self) -> T_co:
        """Open the resource.

        Raises:
            NotEntered: this object was entered before.
            SetupError: no asyncio event loop runs.
        """
        if self._is_entered:
            raise NotEntered(self._call, "entered twice")
        self._origin = BusOrigin.here()
        self._is_entered = True
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close the resource. A forked child that leaves the block closes nothing, because its parent still uses it.

        Raises:
            OpenedElsewhere: this is another event loop than that of `__aenter__`.
        """
        if self._origin is not None:
            if self._origin.is_forked:
                return None
            self._origin.check_running()
        return await self._block.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # a type checker refuses these uses itself

        def __await__(self) -> Never:
            raise NotEntered(self._call, "awaited")

        def __enter__(self) -> Never:
            raise NotEntered(self._call, "entered with `with`")

        def __exit__(self, *_: object) -> None:
            """Complete the protocol of `with`, so that `__enter__` is called."""

        def __getattr__(self, name: str) -> Never:
            raise NotEntered(self._call, f"asked for {name!r}")


# Start or join the server of a bus, connect, check its settings, and open the media store.

_OLDEST_REDIS = (7, 0)

_MEDIA = ("put_if_absent", "get", "head", "delete")
_ARCHIVE = ("put_if_absent", "get", "names", "delete", "clear")
_TRACING = ("is_recording", "sending", "received", "processing", "settling")


class BusResources(NamedTuple):
    """The connections, keys and media store of a bus. `open_resources` opens and closes them."""

    topology: Topology
    pool: Pool
    keys: Keys
    media: MediaStore
    agent: str
    """the namespace's default agent"""
    fault: Callable[[], Unavailable | None] | None
    """returns why the embedded server ended, if it is known; None for another server"""


def check_options(
    media: object, archive: object, inline_limit_bytes: object, *, limits: object, bounds: object, tracing: object
) -> None:
    """Raise InvalidArgument if an argument of `Bus.open` has a wrong type, such as a path in place of a store."""
    require_count("inline_limit_bytes", inline_limit_bytes, is_optional=True)
    for name, store, methods in (("media", media, _MEDIA), ("archive", archive, _ARCHIVE)):
        require_methods(name, store, methods, f"pass a store, such as one of `lanebus.{name}`", is_optional=True)
    require_methods(
        "tracing", tracing, _TRACING, "pass what `lanebus.telemetry.otel_tracing()` returns, or leave it out"
    )


@asynccontextmanager
async def open_resources(
    url: str | None, data_dir: Path | str | None, namespace: str, media: MediaStore | None, bounds: Bounds
) -> AsyncGenerator[BusResources, None]:
    """Start or join the server, connect, check the server, and open the media store. Close all in reverse order.

    See `Bus.open` for the arguments and errors.
    """
    # Imported here because the Redis client takes as long to import as the rest of the bus. A program that only needs
    # a message type, or the help of a command, does not load it.
    from lanebus.bus.servers.endpoint import Endpoint  # noqa: PLC0415
    from lanebus.bus.servers.topology import OneServer, topology_at  # noqa: PLC0415

    check_namespace(namespace)
    require_instance("data_dir", data_dir, (str, Path), "pass a path", is_optional=True)
    if data_dir == "":
        raise InvalidArgument("data_dir", data_dir, "pass a path, or None for the default directory")
    require_text("url", url, is_optional=True)
    connection = bounds.connection
    if url is None and data_dir is None:
        url = os.environ.get("LANEBUS_URL") or None
    async with AsyncExitStack() as stack:
        fault = None
        if url is None:
            embedded = await stack.enter_async_context(open_server(None if data_dir is None else Path(data_dir)))
            fault = embedded.fault
            topology: Topology = OneServer(Endpoint.at_socket(str(embedded.socket), connection, fault), connection)
        else:
            topology = topology_at(url, connection)
            warn_of_transport(url)
        pool = topology.pool(connection.pool_connections)
        stack.push_async_callback(pool.close)
        buckets, agent = await _prepare(topology, pool, namespace, connection)
        keys = Keys(namespace, buckets)
        if media is None:
            media_pool = topology.pool(connection.media_connections)
            stack.push_async_callback(media_pool.close)
            media = RedisMedia(media_pool, keys, bounds=bounds.media)
        elif isinstance(media, SharedStore):
            media = media.in_namespace(namespace)
        yield BusResources(topology, pool, keys, media, agent, fault)


_LOGIN = "correct both in the URL: redis://user:password@host:port"


async def _prepare(topology: Topology, pool: Pool, namespace: str, bounds: ConnectionBounds) -> tuple[int, str]:
    """Check the servers, and return the namespace's number of buckets and its default agent.

    If a server answered before, a lost connection is retried with backoff. If no server ever answered, raise at once.
    """
    from lanebus.bus.servers.connection import patient_backoff  # noqa: PLC0415  # imports the client, which is slow

    backoff = patient_backoff(bounds)
    while True:
        try:
            return await _try_prepare(topology, pool, namespace, bounds.loading_pause_seconds)
        except LoginRefused as refusal:
            file = refusal.password_file
            remedy = f"correct the password in {file}, or the user in the URL" if file else _LOGIN
            raise SetupError(refusal.fault, remedy) from None
        except Refused as refusal:
            if refusal.code in {"NOAUTH", "WRONGPASS"}:
                raise SetupError(f"the server refused the user or password: {refusal.code}", _LOGIN) from None
            if refusal.code == "NOPERM":
                remedy = f"log in as a user of namespace {namespace!r}, or name the namespace that the user is for; "
                users = f"`lanebus acl --namespace {namespace}` prints users with all rights that are needed"
                raise SetupError(refusal.fault, remedy + users) from None
            raise
        except Unavailable:
            if not pool.has_connected or not await backoff.wait():
                raise


async def _try_prepare(topology: Topology, pool: Pool, namespace: str, loading_pause: float) -> tuple[int, str]:
    """Check the servers, and return the number of buckets and the default agent.

    The number of buckets is written once per namespace and never changes.
    """
    infos = await _loaded(pool, loading_pause)
    for info in infos:
        _check(info, is_one=topology.is_one)
    await check_durability(pool, infos, Keys(namespace))
    warn_of_advisories(infos)
    buckets, schema, agent = await begin_namespace(pool, Keys(namespace))
    check_stored_form(namespace, buckets=buckets, schema=schema)
    name = DEFAULT_AGENT if agent is None else agent.decode(errors="replace")
    return int(buckets), name if is_name(name) else DEFAULT_AGENT


def check_stored_form(namespace: str, *, buckets: bytes, schema: bytes) -> None:
    """Check that this package reads and writes a namespace with this number of buckets and this schema.

    Raises:
        OldNamespace: an older package wrote the namespace.
        UnsafeServer: a newer package wrote it, or another client has written one of the values.
    """
    for name, value in (("schema", schema), ("buckets", buckets)):
        if not (value.isdigit() and len(value) < 7):
            wanted = "a number: another client has written the namespace's config"
            raise UnsafeServer(name, value.decode(errors="replace")[:80], wanted)
    if int(schema) < SCHEMA:
        raise OldNamespace(namespace, int(schema), SCHEMA)
    if int(schema) > SCHEMA:
        raise UnsafeServer("schema", schema.decode(), f"{SCHEMA}: a newer package wrote this namespace")


async def _loaded(pool: Pool, pause: float) -> list[dict[str, str]]:
    """Wait until every server has loaded its data, and return the `INFO` fields of each."""
    while True:
        infos = [*(await server_infos(pool)).values()]
        if all(info.get("loading", "0") == "0" for info in infos):
            return infos
        await anyio.sleep(pause)


def _check(info: dict[str, str], *, is_one: bool) -> None:
    """Raise UnsafeServer if the bus cannot rely on a server with these `INFO` fields."""
    if is_one and info.get("cluster_enabled") == "1":
        raise UnsafeServer("cluster-enabled", "yes", "a URL redis+cluster://host:port for a cluster")
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    if tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2]) < _OLDEST_REDIS:
        raise UnsafeServer("version", version, "Redis 7.0 or Valkey 8 and newer")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise UnsafeServer("maxmemory-policy", policy, "noeviction: another policy deletes whole sessions")


# The shards of a bus. Each shard has its own publisher and readers, created on first use of one of its sessions.
#
# A single server is one shard. In a cluster each bucket is a shard, because the keys of one publish, or of one blocking
# read, must all be in one slot.


class Shard(NamedTuple):
    """The publisher and the readers of a part of the sessions: all sessions of one server, or a bucket of a cluster."""

    publisher: Publisher
    hub: Hub
    wake_ups: WakeUps


class Shards:
    """The shards in use. A shard is created when one of its sessions is first used."""

    def __init__(
        self,
        topology: Topology,
        keys: Keys,
        publisher: Callable[[Route], Publisher],
        hub: Callable[[Route], Hub],
        wake_ups: Callable[[Route, Sequence[int]], WakeUps],
    ) -> None:
        """Store the factories of a shard's parts.

        Args:
            topology: the servers of the bus.
            keys: maps sessions to buckets.
            publisher: creates a shard's publisher from the route to its server.
            hub: creates a shard's hub from the route to its server.
            wake_ups: creates a shard's reader of wake-ups from the route to its server and the shard's buckets.
        """
        self._topology, self._keys = topology, keys
        self._new_publisher, self._new_hub, self._new_wake_ups = publisher, hub, wake_ups
        self._shards: dict[int, Shard] = {}
        self._origin = BusOrigin()
        self._tasks: TaskGroup | None = None
        # One scope per task. Cancelling the task group would also cancel the task that owns the group. An outside
        # cancellation in the same turn of the event loop would then be taken for the group's own, and be lost.
        self._scopes: list[anyio.CancelScope] = []

    def start(self, tasks: TaskGroup) -> None:
        """Run shards in the task group `tasks` from now on."""
        self._tasks = tasks
        self._run(tasks, self._topology.watch)
        if self._topology.is_one:  # always used; created now so that calls after the bus is closed raise its `Closed`
            self._create(0)

    def of(self, session: str) -> Shard:
        """Return the shard of a session.

        Raises:
            Closed: the bus is closed.
            OpenedElsewhere: this is another process or event loop, and the shard is not in use yet.
        """
        number = 0 if self._topology.is_one else self._keys.bucket(session)
        return self._shards.get(number) or self._create(number)

    @property
    def all(self) -> tuple[Shard, ...]:
        """The shards used so far."""
        return tuple(self._shards.values())

    def _create(self, number: int) -> Shard:
        if self._tasks is None:
            raise Closed("bus")
        self._origin.check_running()
        route = self._topology.route(self._keys.index(number))
        buckets = range(self._keys.buckets) if self._topology.is_one else (number,)
        shard = Shard(self._new_publisher(route), self._new_hub(route), self._new_wake_ups(route, buckets))
        self._shards[number] = shard
        for run in (shard.publisher.run, shard.hub.run, shard.wake_ups.run):
            self._run(self._tasks, run)
        return shard

    def _run(self, tasks: TaskGroup, run: Callable[[], Awaitable[None]]) -> None:
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        tasks.start_soon(_run_within, scope, run)

    async def drain(self, seconds: float) -> None:
        """Accept no new publishes, and wait at most `seconds` for the publishes in flight."""
        self._tasks = None
        async with anyio.create_task_group() as draining:
            for shard in self._shards.values():
                draining.start_soon(shard.publisher.drain, seconds)

    def stop(self) -> None:
        """Stop all shards."""
        for scope in self._scopes:
            scope.cancel()


async def _run_within(scope: anyio.CancelScope, run: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await run()


# All bounds of the bus in one dataclass, to pass to `Bus.open`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Sizes, counts, periods and time-outs of one bus. Each field has the bounds of one of its components."""

    connection: ConnectionBounds = field(default_factory=ConnectionBounds)
    """time-outs, retries and connection counts, for all servers"""
    publish: PublishBounds = field(default_factory=PublishBounds)
    """the queue and the batches of `Session.publish`"""
    work: WorkBounds = field(default_factory=WorkBounds)
    """consumer groups, wake-ups and change notices"""
    log: LogBounds = field(default_factory=LogBounds)
    """sizes of the server's replies and of what a session stores besides its entries"""
    hub: HubBounds = field(default_factory=HubBounds)
    """reads for `Session.follow` and `Session.subscribe`"""
    live: LiveBounds = field(default_factory=LiveBounds)
    """the cache and the removal of live deltas. `LogBounds.live_bytes` limits what the server keeps"""
    archive: ArchiveBounds = field(default_factory=ArchiveBounds)
    """segment sizes of the archive"""
    media: MediaBounds = field(default_factory=MediaBounds)
    """the media store on the bus's own server. Other media stores ignore these bounds"""
    activity: ActivityBounds = field(default_factory=ActivityBounds)
    """the page size of `Bus.activity`"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds")


# Look into a bus without its sessions: counters of this process, the state of the servers, and raw reads of keys.


# Counters of one process's bus and the state of its servers, for monitoring.


@dataclass(frozen=True, slots=True, kw_only=True)
class BusCounts:
    """Counters of the bus in this process."""

    publishes: PublishCounts
    """outcomes, times and batches of publishes. The object belongs to the bus, so its counts continue to grow"""
    in_flight: int
    """publishes that were sent and not answered"""
    waiting: int
    """publishes that wait to be sent"""
    followers: int
    """open subscriptions"""
    follower_lag: int
    """entries that the slowest follower has not taken yet"""
    follower_bytes: int
    """bytes of JSON that wait for followers"""
    fell_behind: int
    """how often a follower was too slow, and read the log again"""
    losses: Mapping[LossKind, int]
    """how often a worker or server of the page in this process found that the log was emptied, or rolled back"""


class BusMonitor:
    """Reads the counters of a bus and the state of its servers. It writes nothing."""

    def __init__(self, pool: Pool, shards: Shards, counts: PublishCounts, losses: Mapping[LossKind, int]) -> None:
        self._pool, self._shards, self._counts, self._losses = pool, shards, counts, losses

    def counts(self) -> BusCounts:
        """Return the counters of this process. No I/O."""
        shards = self._shards.all
        opened = [shard.publisher.open for shard in shards]
        lags = [lag for shard in shards for lag in shard.hub.lags]
        return BusCounts(
            publishes=self._counts,
            in_flight=sum(sent for sent, _ in opened),
            waiting=sum(queued for _, queued in opened),
            followers=len(lags),
            follower_lag=max((entries for entries, _ in lags), default=0),
            follower_bytes=sum(size for _, size in lags),
            fell_behind=sum(shard.hub.fell_behind for shard in shards),
            losses=self._losses,
        )

    async def ping(self) -> None:
        """Check that each server answers.

        Raises:
            Unavailable: a server did not answer, or refused the command.
        """
        await self._pool.call_each("PING")

    async def servers(self) -> tuple[PrimaryStatus, ...]:
        """Return the state of each primary.

        Raises:
            Refused: the user may not run INFO.
            Unavailable: a server did not answer.
        """
        return await read_primaries(self._pool)


# The state of a server: its version, its memory, and when it writes to the disk.

Fsync = Literal["always", "everysec", "no", "off", "unknown"]
"""The server's `appendfsync`; "off" without an append-only file, "unknown" if the user may not read the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryStatus:
    """State of one primary."""

    address: str
    """where this process finds it, as `host:port` or the path of a unix socket"""
    product: str
    """"Valkey" or "Redis\""""
    version: str
    """version of the server, such as "9.1.2\""""
    fsync: Fsync
    memory_bytes: int
    """bytes of memory in use"""
    memory_limit_bytes: int
    """`maxmemory`; 0 means no limit"""


async def read_primaries(pool: Pool) -> tuple[PrimaryStatus, ...]:
    """Read the state of each primary.

    Raises:
        Refused: the user may not run INFO.
        Unavailable: a server did not answer.
    """
    infos = await server_infos(pool)
    try:
        settings = await pool.call_each("CONFIG", "GET", "appendfsync")
    except Refused:
        settings = {}
    return tuple(_status(address, info, settings.get(address)) for address, info in infos.items())


def _status(address: str, info: Mapping[str, str], setting: Reply) -> PrimaryStatus:
    version = ServerVersion.of(info)
    words = cast("Sequence[bytes]", setting or ())
    return PrimaryStatus(
        address=address,
        product=version.name,
        version=".".join(map(str, version.number)),
        fsync=_fsync(info, words[1].decode() if len(words) == 2 else ""),
        memory_bytes=_number(info.get("used_memory")),
        memory_limit_bytes=_number(info.get("maxmemory")),
    )


def _fsync(info: Mapping[str, str], mode: str) -> Fsync:
    if info.get("aof_enabled") == "0":
        return "off"
    match mode:
        case "always" | "everysec" | "no":
            return mode
        case _:
            return "unknown"


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


class Inspector:
    """Reads the keys and the archive of a namespace in their stored form. Writes nothing."""

    def __init__(self, pool: Pool, log: Log, archive: Archive | None = None) -> None:
        self._pool, self._log, self._archive = pool, log, archive
        self.keys = log.keys
        """the functions that return the names of the namespace's keys"""

    async def loss_risks(self) -> tuple[str, ...]:
        """Return one sentence for each server version that may lose entries in a power cut: the loss and the remedy.

        Raises:
            Unavailable: a server cannot be reached.
        """
        return await loss_risks(self._pool, [*(await server_infos(self._pool)).values()])

    async def fields(self, key: str, names: Sequence[str]) -> dict[str, bytes]:
        """Read the named fields of a hash in one step. Return those that exist.

        Raises:
            Refused: the key has another type.
            Unavailable: the server cannot be reached.
        """
        values = cast("Sequence[bytes | None]", await self._pool.call("HMGET", key, *names))
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    async def field_of_each(self, keys: Sequence[str], name: str) -> list[bytes | None]:
        """Return the field `name` of several hashes in one round trip. Raises the errors of `fields`.

        All keys must be in one bucket.
        """
        values = await call_all(self._pool, [("HGET", key, name) for key in keys]) if keys else []
        return cast("list[bytes | None]", values)

    async def score_of_each(self, keys: Sequence[str], members: Sequence[str]) -> list[bytes | None]:
        """Return the score of each of `members` in the sorted set at the same index of `keys`, in one round trip.

        Raises the errors of `fields`.
        """
        commands = [("ZSCORE", key, member) for key, member in zip(keys, members, strict=True)]
        scores = await call_all(self._pool, commands) if commands else []
        return cast("list[bytes | None]", scores)

    async def hash_pages(self, key: str, match: str = "*") -> AsyncGenerator[Mapping[bytes, bytes], None]:
        """Yield pages of the hash fields whose names match the pattern `match`. Raises the errors of `fields`.

        A field that is written during the iteration may be yielded twice.
        """
        cursor = b"0"
        while True:
            count = self._log.bounds.page_entries
            reply = await self._pool.call("HSCAN", key, cursor, "MATCH", match, "COUNT", count)
            cursor, found = cast("tuple[bytes, Sequence[bytes]]", reply)
            yield dict(zip(found[::2], found[1::2], strict=True))
            if cursor == b"0":
                return

    async def stream_pages(self, key: str, first: str = "-", last: str = "+") -> AsyncGenerator[Sequence[Entry], None]:
        """Yield the entries of a stream from id `first` to id `last`, oldest first. Raises the errors of `fields`."""
        async with aclosing(stream_pages(self._log, key, first, last)) as pages:
            async for page in pages:
                yield page

    async def existing(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that exist. All of `keys` must be in one bucket."""
        counts = await call_all(self._pool, [("EXISTS", key) for key in keys])
        return [key for key, count in zip(keys, counts, strict=True) if count]

    @property
    def has_archive(self) -> bool:
        """Whether the bus was opened with an archive."""
        return self._archive is not None

    async def archived_pages(
        self, head: SessionHead, after: int, until: int
    ) -> AsyncGenerator[list[tuple[Lane, Entry]], None]:
        """Yield the archived entries of both lanes after position `after` and up to `until`, in position order.

        Yields nothing if the bus has no archive.

        Raises:
            CursorTrimmed: the next entry was never archived. All entries before it were yielded.
            ArchiveDamaged: as for `ArchiveReader.pages`.
            LogRolledBack: as for `ArchiveReader.pages`.
            Unavailable: as for `ArchiveReader.pages`.
            SetupError: as for `ArchiveReader.pages`.
        """
        if self._archive is None:
            return
        async for page in self._archive.pages(head, tuple(Lane), after, until):
            entries = [(lane, entry) for lane, entries in page.entries for entry in entries]
            entries.sort(key=_position)
            yield entries

    async def key_names(self) -> AsyncGenerator[list[str], None]:
        """Yield the names of all keys of the namespace, in no order. A name may be yielded twice.

        Raises:
            Unavailable: the server cannot be reached.
        """
        async with aclosing(self._pool.scan(f"{_literal(self.keys.namespace)}:*")) as pages:
            async for names in pages:
                yield [name.decode(errors="backslashreplace") for name in names]


def _position(entry: tuple[Lane, Entry]) -> int:
    return position_of(entry[1])


def _literal(text: str) -> str:
    """Return a glob pattern that matches only this text."""
    return "".join(f"\\{character}" if character in "*?[]\\" else character for character in text)
