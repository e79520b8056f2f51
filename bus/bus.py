"""A bus: its sessions, its consumer groups, and what is known of all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Self, cast

import anyio

from lanebus.bus.archive.archive import Archive
from lanebus.bus.archive.store import ArchiveStore
from lanebus.bus.bounds import Bounds
from lanebus.bus.following.hub import Hub
from lanebus.bus.groups.activity import Activity, read_activity
from lanebus.bus.groups.consumer import Consumer, Start
from lanebus.bus.groups.dead_letters import DeadLetters
from lanebus.bus.groups.lease_status import LeaseStatus, read_leases
from lanebus.bus.groups.names import all_group_names
from lanebus.bus.groups.status import GroupStatus, read_group, remove_group
from lanebus.bus.groups.wake_ups import WakeUps
from lanebus.bus.inspection import Inspector
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead
from lanebus.bus.log.lease import Leases
from lanebus.bus.log.log import Log
from lanebus.bus.media.offload import Offload
from lanebus.bus.media.store import MediaStore
from lanebus.bus.messages.media import INLINE_LIMIT_BYTES
from lanebus.bus.previews.previews import Previews
from lanebus.bus.previews.writer import PreviewWriter
from lanebus.bus.publishing.limits import Limits, Quota
from lanebus.bus.publishing.outboxes import Outboxes
from lanebus.bus.publishing.publisher import Publisher
from lanebus.bus.resources import BusResources, open_resources
from lanebus.bus.servers.durability import DurabilityWarning
from lanebus.bus.servers.grouped_pool import GroupedPool
from lanebus.bus.session.resources import SessionResources
from lanebus.bus.session.session import Session
from lanebus.bus.shards import Shards
from lanebus.bus.wire.keys import check_consumer, check_group, check_session_id

if TYPE_CHECKING:
    from lanebus.bus.servers.topology import Route

__all__ = ("Bus", "DurabilityWarning")

HEARTBEAT_SECONDS = 15.0
"""How long a silent consumer counts as alive."""


class Bus:
    """An open bus. All sessions of one process share its publisher, its reader and its media store."""

    def __init__(
        self,
        resources: BusResources,
        *,
        archive: ArchiveStore | None = None,
        inline_limit_bytes: int | None,
        limits: Limits,
        bounds: Bounds,
    ) -> None:
        topology, pool, keys, media = resources
        self.media = media
        """the media store"""
        self._topology, self._pool, self._keys, self._bounds = topology, pool, keys, bounds
        self._log = Log(pool, keys, bounds.log, bounds.work)
        self._grouped_pool = GroupedPool(pool, bounds.connection)
        self._grouped_log = Log(self._grouped_pool, keys, bounds.log, bounds.work)
        self.leases = Leases(self._grouped_log)
        """of many sessions at a time, for a worker"""
        self._archive = Archive(self._log, archive, keys.namespace, bounds.archive) if archive is not None else None
        self.inspector = Inspector(pool, self._log, self._archive)
        """shows what is stored as it is; publishing and reading do not need it"""
        producer = token_urlsafe(9)
        self._previews = Previews(self._log, bounds.live)
        self._preview_writer = PreviewWriter(self._log, producer, self._previews)
        quota, outboxes = Quota(self._log, limits), Outboxes(producer, bounds.publish.sessions)

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
            lambda route, buckets: WakeUps(route, keys, buckets, bounds.work),
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
        """Open a bus for the length of the block.

        Args:
            url: of a server of yours: `redis://`, `rediss://` or `unix://`; `redis+sentinel://host,host/service` for
                the primary that Sentinels name; `redis+cluster://host,host` for a cluster, of which any servers are
                enough. None starts or joins the embedded server.
            data_dir: where the embedded server keeps its log; None is the user's own place.
            namespace: the beginning of every key, 1 to 64 letters, digits and characters of `_ . : -`. Buses of
                different namespaces do not see each other.
            media: where large media go; None is the server of the bus itself. All buses of a namespace need the same.
            archive: where sessions are archived, and where trimmed entries are read from. All buses of a namespace need
                the same. None means no archive.
            inline_limit_bytes: inline media of this decoded size and more go into the media store as they are
                published; None leaves all in their messages.
            limits: what a publish of this process may not exceed; None limits the single message alone.
            bounds: sizes of buffers and pages, periods and time-outs; None is the defaults.

        Raises:
            SetupError: the settings cannot work: its subclasses say what to change.
            Unavailable: the server cannot be reached or did not start.
        """
        bounds = bounds or Bounds()
        async with open_resources(url, data_dir, namespace, media, bounds) as resources:
            bus = cls(
                resources,
                archive=archive,
                inline_limit_bytes=inline_limit_bytes,
                limits=limits or Limits(),
                bounds=bounds,
            )
            async with bus._running():
                yield bus

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        """Run the shards for the length of the block, then wait for the publishes in flight.

        An error of the block, or of a shard, leaves it as it is and in no exception group.
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
        except BaseExceptionGroup as group:  # a fault of the bus itself
            failure = failure or _first(group)
        if failure is not None:
            raise failure

    def session(self, session_id: str, *, grouped: bool = False) -> Session:
        """Return a session by its id; no I/O.

        Args:
            grouped: share round trips of short reads with other sessions that were opened so: for a worker that runs
                many at a time. A session alone waits no longer.

        Raises:
            InvalidSessionId: the id does not match `[A-Za-z0-9_-]{1,64}`.
            Closed: the bus is closed.
        """
        shard = self._shards.of(check_session_id(session_id))
        resources = SessionResources(
            session_id,
            self._grouped_log if grouped else self._log,
            *shard,
            self._previews,
            self._preview_writer,
            self.media,
            self._archive,
        )
        return Session(resources, self.session)

    async def sessions(self) -> list[SessionHead]:
        """Return the heads of all sessions, the one that changed last first.

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
        """Return a consumer of a group; no I/O.

        Args:
            group: its consumers share the work; it matches `[A-Za-z0-9_.-]{1,64}`.
            name: of this consumer, and of no other at a time. The same name after a restart gets its unfinished work
                again. 1 to 128 printable ASCII characters, no space.
            heartbeat: seconds without a heartbeat after which other consumers claim its unfinished work.
            start: where a new group begins, as its first consumer says: at the "beginning", with every session that
                ever woke a worker, or "now", with what wakes one from its first `take` on.
            owner: acquire the free leases of sessions for this owner as their wake-ups are fetched, for a heartbeat:
                `Work.lease`. It saves a round trip; "" acquires none.
            first_page: returns `Session.first_page` of a session that a wake-up names, which is read in the same step
                if its lease is acquired: `Work.page`.

        Raises:
            InvalidName: a name does not match.
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
        """Return the dead letters of a group; no I/O.

        Raises:
            InvalidName: the name does not match.
        """
        return DeadLetters(self._log, check_group(group))

    async def groups(self) -> tuple[str, ...]:
        """Return the names of all groups that have ever taken work, sorted.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await all_group_names(self._log)

    async def group_status(self, group: str) -> GroupStatus:
        """Return who works in a group, on what, and what waits; all zeros for one that does not exist.

        Raises:
            InvalidName: the name does not match.
            Unavailable: the server cannot be reached.
        """
        return await read_group(self._pool, self._keys, check_group(group), self._bounds.work)

    async def remove_group(self, group: str, *, force: bool = False) -> bool:
        """Remove a group without live consumers: its open work, its dead letters and its place. It holds no trim any
        more. Sessions stay as they are. A consumer with the group's name begins a new one.

        Args:
            force: even if consumers of it are alive by the server's clock.

        Returns:
            Whether the group existed.

        Raises:
            GroupInUse: consumers of it are alive; nothing was removed.
            InvalidName: the name does not match.
            Unavailable: the server cannot be reached; some of it may be gone: call it again.
        """
        return await remove_group(self._log, check_group(group), force=force)

    async def activity(self, since: Activity | None = None) -> Activity:
        """Return how much was published on this bus, and in which sessions since `since`. It costs the server the same
        for any number of sessions.

        Raises:
            Unavailable: the server cannot be reached.
        """
        return await read_activity(self._pool, self._keys, since, self._bounds.activity)

    async def lease_status(self, sessions: Collection[str]) -> list[LeaseStatus]:
        """Return who has the leases of sessions, in their order; nobody for one that does not exist.

        Raises:
            InvalidSessionId: an id does not match.
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
