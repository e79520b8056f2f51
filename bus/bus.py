"""Open and close a bus: on the embedded server of a directory, or on yours."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Self, cast

import anyio

from bus.activity import Activity, read_activity
from bus.archive import Archive, ArchiveStore
from bus.bounds import Bounds
from bus.connection_bounds import ConnectionBounds
from bus.consumer import Consumer, Start
from bus.dead_letters import DeadLetters
from bus.durability import DurabilityWarning, check_durability, server_infos
from bus.errors import LoginRefused, OldNamespace, Refused, SetupError, Unavailable, UnsafeServer
from bus.group_names import all_group_names
from bus.grouped_pool import GroupedPool
from bus.groups import GroupStatus, read_group, remove_group
from bus.head import SessionHead
from bus.hub import Hub
from bus.inspection import Inspector
from bus.keys import BUCKETS, Keys, check_consumer, check_group, check_namespace, check_session_id
from bus.lease_status import LeaseStatus, read_leases
from bus.leases import Leases
from bus.limits import Limits, Quota
from bus.live import Live
from bus.log import FirstPage, Log
from bus.media.offload import Offload
from bus.media.redis_media import RedisMedia
from bus.media.store import MediaStore
from bus.messages.media import INLINE_LIMIT_BYTES
from bus.outboxes import Outboxes
from bus.publisher import Publisher
from bus.ringing import Ringing
from bus.server import open_server
from bus.session import Session
from bus.shards import Shards

if TYPE_CHECKING:
    from bus.connection import Pool, Route, Topology

__all__ = ("Bus", "DurabilityWarning")

HEARTBEAT_SECONDS = 15.0
"""How long a silent consumer counts as alive."""

SCHEMA = 2

_OLDEST = (7, 0)


class Bus:
    """An open bus. All sessions of one process share its publisher, its reader and its media store."""

    def __init__(
        self,
        topology: Topology,
        pool: Pool,
        keys: Keys,
        media: MediaStore,
        *,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None,
        limits: Limits,
        bounds: Bounds,
    ) -> None:
        self.media = media
        """where large media are"""
        self._topology, self._pool, self._keys, self._bounds = topology, pool, keys, bounds
        self._log = Log(pool, keys, bounds.log, bounds.work)
        self._grouped_pool = GroupedPool(pool, bounds.connection)
        self._grouped_log = Log(self._grouped_pool, keys, bounds.log, bounds.work)
        self.leases = Leases(self._grouped_log)
        """of many sessions at a time, for who works on them"""
        quota = Quota(self._log, limits)
        self._archive = Archive(self._log, archive, keys.namespace, bounds.archive) if archive is not None else None
        self.inspector = Inspector(pool, self._log, self._archive)
        """looks at what is stored as it is; nobody needs it to publish or to read"""
        producer = token_urlsafe(9)
        self._live = Live(self._log, producer, bounds.live)
        outboxes = Outboxes(producer, bounds.publish.sessions)

        def publisher(route: Route) -> Publisher:
            offload = Offload(media, inline_limit_bytes)
            return Publisher(
                *(route, keys, self._log, offload),
                outboxes=outboxes,
                limits=limits,
                quota=quota,
                bounds=bounds.publish,
            )

        self._shards = Shards(
            topology,
            keys,
            publisher,
            lambda route: Hub(route, keys, self._log, bounds.hub),
            lambda route, buckets: Ringing(route, keys, buckets, bounds.work),
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str | None = None,
        *,
        data_dir: Path | None = None,
        namespace: str = "lanebus",
        media: MediaStore | None = None,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None = INLINE_LIMIT_BYTES,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
    ) -> AsyncGenerator[Self, None]:
        """A bus for the length of the block.

        Args:
            url: of a server of yours: `redis://`, `rediss://` or `unix://`; `redis+sentinel://host,host/service` for
                the primary that Sentinels name; `redis+cluster://host,host` for a cluster, of which any servers are
                enough. None starts or joins the embedded one.
            data_dir: where the embedded server keeps its log; None is the user's own place.
            namespace: the beginning of every key, 1 to 64 letters, digits and characters of `_ . : -`; buses of
                different namespaces do not see each other.
            media: where large media go; None is the server of the bus itself. All buses of a namespace need the same.
            archive: where sessions are archived, and read from what was trimmed away; all buses of a namespace need the
                same. None is nowhere.
            inline_limit_bytes: inline media of this decoded size and more go there as they are published; None leaves
                all in their messages.
            limits: what a publish of this process may not go beyond; None limits the single message alone.
            bounds: sizes of buffers and pages, periods and time-outs; None is the defaults.

        Raises:
            SetupError: the settings cannot work: its subclasses say what to change.
            Unavailable: the server cannot be reached or did not start.
        """
        # Here and not above: the client takes as long to import as all of the bus, and who only wants a message
        # type, or a command's help, does not need it.
        from bus.connection import OneServer, Server, topology_at  # noqa: PLC0415

        bounds = bounds or Bounds()
        check_namespace(namespace)
        async with AsyncExitStack() as stack:
            if url is None:
                embedded = await stack.enter_async_context(open_server(data_dir))
                topology: Topology = OneServer(
                    Server.at_socket(str(embedded.socket), bounds.connection), bounds.connection
                )
            else:
                topology = topology_at(url, bounds.connection)
            pool = topology.pool(bounds.connection.pool_connections)
            stack.push_async_callback(pool.close)
            keys = Keys(namespace, await _prepare(topology, pool, namespace, bounds.connection))
            if media is None:
                media_pool = topology.pool(bounds.connection.media_connections)
                stack.push_async_callback(media_pool.close)
                media = RedisMedia(media_pool, keys, bounds=bounds.media)
            bus = cls(
                *(topology, pool, keys, media),
                archive=archive,
                inline_limit_bytes=inline_limit_bytes,
                limits=limits or Limits(),
                bounds=bounds,
            )
            failure: BaseException | None = None
            try:
                async with anyio.create_task_group() as tasks:
                    bus._shards.start(tasks)
                    try:
                        yield bus
                    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised again below,
                        failure = error  # outside of the group: it stays what it is, not wrapped in an ExceptionGroup
                    finally:
                        with anyio.CancelScope(shield=True):
                            await bus._shards.drain(bounds.publish.close_seconds)
                            await bus._grouped_pool.close()
                        bus._shards.stop()
            except BaseExceptionGroup as group:  # a fault of the bus itself: it comes out as what it is, too
                failure = failure or _first(group)
            if failure is not None:
                raise failure

    def session(self, session_id: str, *, grouped: bool = False) -> Session:
        """A session by its id; no I/O.

        Args:
            grouped: its short reads, and those of others that were opened so, share round trips: for who works on many
                at a time. Alone it waits no longer.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            Closed: the bus is closed.
        """
        shard = self._shards.of(check_session_id(session_id))
        return Session(
            session_id,
            self._grouped_log if grouped else self._log,
            shard.publisher,
            shard.hub,
            live=self._live,
            ringing=shard.ringing,
            media=self.media,
            archive=self._archive,
            open_session=self.session,
        )

    async def sessions(self) -> list[SessionHead]:
        """The heads of all sessions, the one that changed last first.

        Raises:
            Unavailable: the server cannot be reached.
        """
        heads = await self._log.heads(await self._log.sessions())
        return sorted(heads, key=lambda head: head.updated, reverse=True)

    def consumer(
        self,
        group: str,
        name: str,
        *,
        heartbeat: float = HEARTBEAT_SECONDS,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
    ) -> Consumer:
        """A worker's place in a consumer group; no I/O.

        Args:
            group: whose consumers share the work; it matches `[A-Za-z0-9_.-]{1,64}`.
            name: of this consumer, and of no other at a time; the same name after a restart gets its unfinished work
                again. 1 to 128 printable ASCII characters, no space.
            heartbeat: seconds without a sign of life after which its unfinished work is given to others.
            start: where the group begins if it is new, as the first of its consumers says: at the "beginning", with
                every session that ever woke a worker, or "now", with what wakes one from its first `take` on.
            owner: take the leases of sessions for this owner with what wake-ups tell of, for a heartbeat, where they
                are
                free: `Work.lease`. One step less than by itself; "" takes none.
            first_page: gives `Session.first_page` of a session that a wake-up names, to be read in the same step if its
                lease is taken: `Work.page`.

        Raises:
            InvalidName: a name is none.
        """
        check_group(group)
        check_consumer(name)
        return Consumer(
            *(self._topology, self._pool, self._keys),
            group=group,
            name=name,
            heartbeat=heartbeat,
            bounds=self._bounds.work,
            start=start,
            owner=owner,
            first_page=first_page,
        )

    def dead_letters(self, group: str) -> DeadLetters:
        """What a group of workers has set aside; no I/O.

        Raises:
            InvalidName: that is no group's name.
        """
        return DeadLetters(self._log, check_group(group))

    async def groups(self) -> tuple[str, ...]:
        """The names of all groups that have ever taken work, sorted.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await all_group_names(self._log)

    async def group_status(self, group: str) -> GroupStatus:
        """Who works in a group, on what, and what waits; of one that does not exist all zeros.

        Raises:
            InvalidName: that is no group's name.
            Unavailable: the server cannot be reached.
        """
        return await read_group(self._pool, self._keys, check_group(group), self._bounds.work)

    async def remove_group(self, group: str, *, force: bool = False) -> bool:
        """End a group that nobody works in any more: its open work, its dead letters and its place go, and it holds no
        trim. Sessions are as they were. A consumer that comes by its name again begins a new one.

        Args:
            force: also where consumers of it are alive, as far as the server's clock tells.

        Returns:
            Whether there was one.

        Raises:
            GroupInUse: consumers of it are alive; nothing was removed.
            InvalidName: that is no group's name.
            Unavailable: the server cannot be reached; some of it may be gone: call it again.
        """
        return await remove_group(self._log, check_group(group), force=force)

    async def activity(self, since: Activity | None = None) -> Activity:
        """How much was published on this bus, and since the look before in which sessions. It costs the server the
        same whatever there is.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await read_activity(self._pool, self._keys, since, self._bounds.activity)

    async def lease_status(self, sessions: Collection[str]) -> list[LeaseStatus]:
        """Who has the leases of sessions, in their order; of one that does not exist nobody.

        Raises:
            InvalidSessionId: one of them is none.
            Unavailable: the server cannot be reached.
        """
        found = {
            each.session: each for each in await read_leases(self._pool, self._keys, map(check_session_id, sessions))
        }
        return [found[session] for session in sessions]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group that is no group itself."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _first(cast("BaseExceptionGroup[BaseException]", first))
    return first


async def _prepare(topology: Topology, pool: Pool, namespace: str, bounds: ConnectionBounds) -> int:
    """Check the servers, and agree on the number of buckets.

    A server that has been there and goes away meanwhile is waited for; one that never was is not.
    """
    from bus.pool import pauses  # noqa: PLC0415  # with the client, as above

    waits = pauses(bounds.patience_seconds)
    while True:
        try:
            return await _try_prepare(topology, pool, namespace, bounds.loading_pause_seconds)
        except LoginRefused as refusal:
            raise SetupError(str(refusal)) from None
        except Refused as refusal:
            if refusal.code in {"NOAUTH", "NOPERM", "WRONGPASS"}:
                raise SetupError(f"the server refused the user or password: {refusal.code}") from None
            raise
        except Unavailable:
            if not pool.has_connected or (pause := next(waits, None)) is None:
                raise
            await anyio.sleep(pause)


async def _try_prepare(topology: Topology, pool: Pool, namespace: str, loading_pause: float) -> int:
    """Check the servers; the number of buckets is written once and never changes."""
    infos = await _loaded(pool, loading_pause)
    for info in infos:
        _check(info, is_one=topology.is_one)
    await check_durability(pool, infos, Keys(namespace))
    config = Keys(namespace).config
    await pool.call("HSETNX", config, "buckets", BUCKETS)
    await pool.call("HSETNX", config, "schema", SCHEMA)
    buckets, schema = cast("list[bytes]", await pool.call("HMGET", config, "buckets", "schema"))
    if int(schema) < SCHEMA:
        raise OldNamespace(namespace, int(schema), SCHEMA)
    if int(schema) > SCHEMA:
        raise UnsafeServer("schema", schema.decode(), f"{SCHEMA}: a newer package wrote this namespace")
    return int(buckets)


async def _loaded(pool: Pool, pause: float) -> list[dict[str, str]]:
    """What each server says of itself, once it has read its file."""
    while True:
        infos = await server_infos(pool)
        if all(info.get("loading", "0") == "0" for info in infos):
            return infos
        await anyio.sleep(pause)


def _check(info: dict[str, str], *, is_one: bool) -> None:
    """Raises SetupError if a server is not what the bus needs."""
    if is_one and info.get("cluster_enabled") == "1":
        raise UnsafeServer("cluster-enabled", "yes", "a URL redis+cluster://host:port for a cluster")
    version = info.get("valkey_version") or info.get("redis_version", "0.0")
    if tuple(int(part) for part in info.get("redis_version", "0.0").split(".")[:2]) < _OLDEST:
        raise UnsafeServer("version", version, "Redis 7.0 or Valkey 8 and newer")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise UnsafeServer("maxmemory-policy", policy, "noeviction: another policy deletes whole sessions")
