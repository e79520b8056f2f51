"""`Bus` opens a bus and gives access to its sessions, its agents, its consumer groups, and their status."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Protocol, Self

import anyio

from lanebus.bus.archive.archive import Archive
from lanebus.bus.archive.segment import ArchiveStore
from lanebus.bus.concurrency import BusOrigin, first_error
from lanebus.bus.errors import require_all, require_count
from lanebus.bus.following.hub import Hub
from lanebus.bus.groups import status
from lanebus.bus.groups.consumer import HEARTBEAT_SECONDS, Consumer
from lanebus.bus.groups.failed_work import DeadLetters, FailedWorks
from lanebus.bus.groups.group_log import Start
from lanebus.bus.groups.status import (
    Activity,
    AgentStatus,
    AgentWork,
    GroupStatus,
    LeaseStatus,
    all_group_names,
    is_known_agent,
    read_activity,
    read_agents,
    read_default_agent,
    read_leases,
    read_live_workers,
    read_unfetched_work,
    store_default_agent,
)
from lanebus.bus.groups.wake_ups import WakeUps
from lanebus.bus.hooks import NO_REDACTION, NO_TRACING, Redact, Redaction, Tracing
from lanebus.bus.log.lease import Leases
from lanebus.bus.log.log import FirstPage, Log, SessionHead
from lanebus.bus.log.namespace import NamespaceLog, SessionCatalog
from lanebus.bus.media.store import MediaStore, Offload, counted_media
from lanebus.bus.messages.content import INLINE_LIMIT_BYTES
from lanebus.bus.opening import (
    Bounds,
    BusMonitor,
    BusResources,
    Inspector,
    Opening,
    Shards,
    check_options,
    open_resources,
)
from lanebus.bus.previews import Previews, PreviewWriter
from lanebus.bus.publishing.outbox import Outboxes
from lanebus.bus.publishing.publisher import Limits, PublishCounts, Publisher, Quota, TracedPublisher
from lanebus.bus.servers.shared import GroupedPool
from lanebus.bus.session import Session
from lanebus.bus.session_upkeep import SessionResources
from lanebus.bus.wire.keys import DEFAULT_AGENT, check_agent, check_consumer, check_group, check_session_id

if TYPE_CHECKING:
    from lanebus.bus.servers.connection import Route


class Bus:
    """An open bus, made by `Bus.open`. All sessions of a bus share its connections, its publisher and its reader."""

    def __init__(
        self,
        resources: BusResources,
        archive: ArchiveStore | None,
        inline_limit_bytes: int | None,
        *,
        limits: Limits,
        bounds: Bounds,
        tracing: Tracing,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        topology, pool, keys, media, agent, fault = resources
        self.default_agent = agent
        """the agent of sessions that are begun without one"""
        self.tracing = tracing
        """records the bus's operations; workers and `serve` use it too"""
        self._redaction = redaction
        self._topology, self._pool, self._keys, self._bounds = topology, pool, keys, bounds
        self._origin = BusOrigin()
        self.log = Log(pool, keys, bounds.log, bounds.work)
        """sends commands and scripts; for the methods of this class"""
        self.namespace = NamespaceLog(self.log)
        """internal: notices that the log was emptied or went back, for workers and `serve`"""
        self._grouped_pool = GroupedPool(pool, bounds.connection)
        self._grouped_log = Log(self._grouped_pool, keys, bounds.log, bounds.work)
        self.leases = Leases(self._grouped_log)
        """internal: acquires, renews and releases leases of many sessions, for workers. Use `Session.lease`"""
        self._archive = Archive(self.log, archive, keys.namespace, bounds.archive) if archive is not None else None
        self.inspector = Inspector(pool, self.log, self._archive)
        """internal: raw reads of the stored keys, for `lanebus verify`. It may change"""
        self.catalog = SessionCatalog(self.log)  # pages of sessions, the most recently changed first
        producer = token_urlsafe(9)
        self._previews = Previews(self.log, bounds.live)
        self._preview_writer = PreviewWriter(self.log, producer, self._previews)
        counts = PublishCounts()
        quota, outboxes = Quota(self.log, limits), Outboxes(producer, bounds.publish.sessions)
        self.media = counted_media(media, self.log, quota)
        """the media store of all sessions; what it stores counts in `limits`"""

        def publisher(route: Route) -> Publisher:
            return Publisher(
                route,
                keys,
                self.log,
                Offload(self.media, inline_limit_bytes),
                outboxes=outboxes,
                limits=limits,
                quota=quota,
                bounds=bounds.publish,
                counts=counts,
                cause=fault,
            )

        self._shards = Shards(
            topology,
            keys,
            publisher,
            lambda route: Hub(route, keys, self.log, bounds.hub),
            lambda route, buckets: WakeUps(route, keys, buckets, bounds.work),
        )
        self.monitor = BusMonitor(pool, self._shards, counts, self.namespace.losses)
        """counters of this process, and the state of the servers"""

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        data_dir: Path | str | None = None,
        namespace: str = "lanebus",
        media: MediaStore | None = None,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None = INLINE_LIMIT_BYTES,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        tracing: Tracing = NO_TRACING,
        redact: Redact | None = None,
    ) -> Opening[Self]:
        """Open a bus for the duration of an `async with` block.

        A bus works in the process and in the event loop of asyncio that opened it; everywhere else its calls raise
        `OpenedElsewhere`, before anything is sent. A forked child opens a bus of its own.

        Leaving the block waits at most `PublishBounds.close_seconds` (5 seconds) for publishes in flight, even if the
        block is cancelled. After that, a publish without an answer raises `OutcomeUnknown`. A publish that was not
        sent raises `Closed`. An error of the block is raised as it is, never in an exception group.

        Args:
            url: your server: `redis://`, `rediss://` or `unix://`; `redis+sentinel://host,host/service` for the primary
                that Sentinels name; `redis+cluster://host,host` for a cluster, given any of its servers. None means
                `$LANEBUS_URL` if `data_dir` is also None, or else the embedded server, which is started or joined.
            data_dir: directory of the embedded server's data. None means `$LANEBUS_DATA_DIR`, or else `lanebus` in the
                user's data directory.
            namespace: prefix of every key, 1 to 64 letters, digits and characters of `_ . : -`. Buses with different
                namespaces share nothing.
            media: store for large media. All buses of a namespace need the same store; a `SharedStore` serves several
                namespaces. None means the bus's own server.
            archive: store that sessions are archived to, and that trimmed entries are read from. All buses of a
                namespace need the same store. None means no archive.
            inline_limit_bytes: decoded size from which `publish` moves inline media to the media store. None leaves
                all media in their messages.
            limits: limits on what this process publishes. None limits only the size of each message.
            bounds: sizes of buffers and pages, periods and time-outs. None means the defaults.
            tracing: records traces, see `lanebus.telemetry`. The default records none.
            redact: plain function that gets each message and live delta before it is published, and returns it as it
                may be stored, see `lanebus.messages.Redact`. None changes nothing.

        Raises:
            InvalidArgument: an argument has a wrong type.
            NotEntered: the result was used without `async with`.
            SetupError: a setting cannot work; the error names the setting.
            Unavailable: the server cannot be reached, or the embedded server did not start.
        """
        check_options(media, archive, inline_limit_bytes, limits=limits, bounds=bounds, tracing=tracing)
        bounds, limits, redaction = bounds or Bounds(), limits or Limits(), Redaction(redact)

        @asynccontextmanager
        async def opened() -> AsyncGenerator[Self, None]:
            async with open_resources(url, data_dir, namespace, media, bounds) as resources:
                bus = cls(
                    resources,
                    archive,
                    inline_limit_bytes,
                    limits=limits,
                    bounds=bounds,
                    tracing=tracing,
                    redaction=redaction,
                )
                async with bus._running():
                    yield bus

        return Opening(opened(), "Bus.open()")

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        """Run the shards during the block, then wait for the publishes in flight.

        An error of the block or of a shard is raised as it is, never in an exception group.
        """
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                self._shards.start(tasks)
                try:
                    yield
                except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised again below,
                    failure = error  # outside of the task group, which would wrap it in an exception group
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._shards.drain(self._bounds.publish.close_seconds)
                        await self._grouped_pool.close()
                    self._shards.stop()
        except BaseExceptionGroup as group:  # a bug in the bus itself
            failure = failure or first_error(group)
        if failure is not None:
            raise failure

    def session(self, session_id: str, *, agent: str | None = None, grouped: bool = False) -> Session:
        """Return a session by its id. No I/O: the session need not exist yet.

        Args:
            session_id: 1 to 64 letters, digits, `_` and `-`.
            agent: the agent that a new session belongs to from its first message on. An existing session keeps its
                agent. None means `default_agent`.
            grouped: send short reads of this session and of other grouped sessions in shared round trips. Set this
                flag for a worker that runs many sessions at a time. If only one session reads, nothing is delayed.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
            Closed: the bus is closed.
        """
        named = self.default_agent if agent is None else check_agent(agent)
        shard = self._shards.of(check_session_id(session_id))
        resources = SessionResources(
            session_id,
            self._grouped_log if grouped else self.log,
            shard.publisher if self.tracing is NO_TRACING else TracedPublisher(shard.publisher, self.tracing),
            *shard[1:],
            self._previews,
            self._preview_writer,
            self.media,
            self._archive,
            named,
            self.tracing,
            self._redaction,
            self._origin,
        )
        return Session(resources, self.session)

    async def agents(self, group: str | None = None) -> list[AgentStatus]:
        """Return the agents of this bus, sorted by name: those with sessions or workers, and the default agent.

        Args:
            group: the consumer group whose workers and waiting sessions are counted; None means all groups.

        Raises:
            InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        default = await read_default_agent(self.log) or DEFAULT_AGENT
        return await read_agents(self.log, None if group is None else check_group(group), default)

    async def is_known_agent(self, agent: str) -> bool:
        """Return whether an agent was ever heard of: it is the default one, a worker has served it, or a session
        belongs to it. Another name is probably misspelt, or its first worker has not started yet.

        Args:
            agent: name of the agent.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await is_known_agent(self.log, agent)

    async def live_workers(self, group: str | None = None) -> Mapping[str, int]:
        """Return how many live workers serve each agent, by the server's clock. Agents without a live worker are
        absent.

        The cost does not depend on the number of sessions.

        Args:
            group: the consumer group of the workers; None means all groups.

        Raises:
            InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        return await read_live_workers(self.log, None if group is None else check_group(group))

    async def set_default_agent(self, agent: str) -> None:
        """Set the namespace's default agent: new sessions belong to it unless the caller names an agent.

        This bus uses the new default at once. Other open buses use it after they are opened again. Existing sessions
        keep their agents. In a new namespace, the default agent is `agent`.

        Args:
            agent: name of the agent.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        await store_default_agent(self.log, check_agent(agent))
        self.default_agent = agent

    async def unfetched_work(self, limit: int = 20) -> tuple[AgentWork, ...]:
        """Return the waiting sessions of agents that no worker has ever served, by agent.

        `group_status` does not count these sessions.

        Args:
            limit: maximum number of agents to look at. Agents with the most sessions come first.

        Raises:
            Unavailable: the server cannot be reached.
        """
        require_count("limit", limit, least=1)
        return await read_unfetched_work(self.log, limit)

    async def groups(self) -> tuple[str, ...]:
        """Return the names of all groups that have ever fetched work and were not removed, sorted.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await all_group_names(self.log)

    async def group_status(self, group: str) -> GroupStatus:
        """Return a group's consumers, how much work they have, and how much waits. All zeros if the group does not
        exist.

        Args:
            group: name of the group.

        Raises:
            InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        return await status.read_group(self.log, check_group(group), self.log.work)

    async def remove_group(self, group: str, *, force: bool = False) -> bool:
        """Remove a group: its pending work, its dead letters and its position. The group no longer blocks trims.

        Sessions do not change. A later consumer with the same group name creates a new group. If the call is cancelled
        or fails, a part of the group may already be removed; repeat the call.

        Args:
            group: name of the group.
            force: remove the group even if it has live consumers.

        Returns:
            Whether the group existed.

        Raises:
            GroupInUse: the group has live consumers, by the server's clock. Nothing was removed.
            InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        return await status.remove_group(self.log, check_group(group), force=force)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a group. No I/O.

        Args:
            group: name of the group.

        Raises:
            InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        return DeadLetters(self.log, check_group(group))

    def failed_work(self) -> FailedWorks:
        """Return a reader of the work that is tried again or became a dead letter, over all groups. No I/O."""
        return FailedWorks(self.log)

    async def lease_status(self, sessions: Collection[str]) -> list[LeaseStatus]:
        """Return which worker owns the lease of each session, for monitoring.

        A lease may be lost after this call. To be sure that a worker still has it, publish with the lease's epoch.

        Args:
            sessions: the ids of the sessions. A session that does not exist has no owner.

        Returns:
            One status per id, in the order of `sessions`.

        Raises:
            InvalidSessionId: an id does not match `[A-Za-z0-9_-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        statuses = {each.session: each for each in await read_leases(self.log.pool, self.log.keys, sessions)}
        return [statuses[session] for session in sessions]

    @property
    def buckets(self) -> int:
        """The number of buckets that the sessions are divided into; it never changes."""
        return self._keys.buckets

    def bucket_of(self, session_id: str) -> int:
        """Return the bucket of a session, from 0; no I/O.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
        """
        return self._keys.bucket(check_session_id(session_id))

    async def sessions(self, *, bucket: int | None = None, agent: str | None = None) -> list[SessionHead]:
        """Return the heads of all sessions, the most recently changed first, without those whose heads are damaged.

        Args:
            bucket: list only the sessions of this bucket, so that many sessions are listed in parts. None means all.
            agent: list only the sessions of this agent; other agents' heads are not read. None means all.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
            Unavailable: the server cannot be reached.
        """
        require_count("bucket", bucket, most=self._keys.buckets - 1, is_optional=True)
        return await self.catalog.all(bucket, None if agent is None else check_agent(agent))

    def consumer(
        self,
        group: str,
        name: str,
        *,
        agents: Sequence[str] | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
        start: Start = "beginning",
        owner: str = "",
        first_page: Callable[[str], FirstPage | None] | None = None,
    ) -> Consumer:
        """Return a consumer of a group. No I/O: the first `fetch` creates the group.

        Args:
            group: name of the group, whose consumers share its work. It matches `[A-Za-z0-9_.-]{1,64}`.
            name: name of this consumer, unique in its group: 1 to 128 printable ASCII characters, no space. A consumer
                that restarts with the same name gets its unfinished work again.
            agents: names of the agents whose sessions to fetch. None means only `default_agent`.
            heartbeat: seconds without a heartbeat after which other consumers claim this consumer's unfinished work.
            start: where a new group begins. "beginning": it fetches every session that ever woke a worker. "now": it
                fetches sessions that wake a worker after the first `fetch`. An existing group ignores `start`.
            owner: the owner's name in leases that `fetch` acquires. If a fetched session's lease is free, `fetch` may
                acquire it for `heartbeat` seconds (`Work.lease`), which saves a round trip. "" acquires no leases.
            first_page: function that returns `Session.first_page` for a session id. If `fetch` asks for only one
                session's lease, it also reads this page in the same round trip (`Work.page`). None reads no page.

        Raises:
            InvalidName: `group`, `name` or one of `agents` does not match its pattern.
            SetupError: `heartbeat` is not a finite number above 0, or `agents` is empty.
        """
        check_group(group)
        check_consumer(name)
        if agents is not None:
            require_all("agents", agents, str, "pass a list of the agents' names")
        served = (self.default_agent,) if agents is None else tuple(check_agent(each, "agents") for each in agents)
        return Consumer(
            self._topology,
            self._pool,
            self._keys,
            group=group,
            name=name,
            agents=served,
            heartbeat=heartbeat,
            bounds=self._bounds.work,
            start=start,
            owner=owner,
            first_page=first_page,
            tracing=self.tracing,
            redaction=self._redaction,
        )

    async def activity(self, since: Activity | None = None) -> Activity:
        """Return how much was ever published on this bus, and which sessions were published to since an earlier call.

        The cost for the server does not depend on the number of sessions.

        Args:
            since: the result of the earlier call. If it is None, the result names no sessions.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await read_activity(self._pool, self._keys, since, self._bounds.activity)


class HasLog(Protocol):
    """The type of `self` in functions that `Bus` has as methods."""

    default_agent: str
    log: Log
