"""Methods of `Session` for upkeep: checkpoints, leases and wake-ups, archive, trim, erase; and what all methods use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import anyio

from lanebus.bus import retention
from lanebus.bus.archive.archive import Archive, Archived, ArchiveProblem, archive_session, check_chain
from lanebus.bus.concurrency import resumable
from lanebus.bus.errors import (
    BusError,
    Fenced,
    LeaseHeld,
    LeaseNotHeld,
    NoArchive,
    NoSuchPosition,
    require_count,
    require_flag,
    require_instance,
    require_seconds,
    require_text,
)
from lanebus.bus.log import lineage as stored
from lanebus.bus.log.lease import Lease, Leases
from lanebus.bus.log.lineage import Checkpoint, check_name
from lanebus.bus.retention import Erased, Trimmed, context_holder
from lanebus.bus.wire.codec import Cursor
from lanebus.bus.wire.keys import check_agent

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from lanebus.bus.concurrency import BusOrigin
    from lanebus.bus.following.hub import Hub
    from lanebus.bus.groups.wake_ups import WakeUps
    from lanebus.bus.hooks import Redaction, Tracing
    from lanebus.bus.log.lease import LeaseAnswer
    from lanebus.bus.log.log import Log
    from lanebus.bus.media.store import MediaStore
    from lanebus.bus.previews import Previews, PreviewWriter
    from lanebus.bus.publishing.publisher import SessionPublisher


class SessionResources(NamedTuple):
    """The id of a session, and the parts of the bus that serve the session. Sessions share these parts."""

    id: str
    log: Log
    publisher: SessionPublisher
    hub: Hub
    wake_ups: WakeUps
    previews: Previews
    preview_writer: PreviewWriter
    media: MediaStore
    archive: Archive | None
    agent: str
    """the agent that the session gets with its first message"""
    tracing: Tracing
    redaction: Redaction
    """changes each message before it is published or previewed"""
    origin: BusOrigin
    """refuses calls from another process or event loop"""


class HasResources(Protocol):
    """The type of `self` in functions that other modules define and that `Session` uses as methods."""

    @property
    def resources(self) -> SessionResources:
        """The session's id, and the parts of the bus that serve the session."""
        ...


# Methods of `Session` that store the progress of readers: states of projections, and checkpoints.


async def load_projection(self: HasResources, name: str, version: int) -> Checkpoint | None:
    """Return the stored state of a projection with its checkpoint, or None if nothing is stored.

    Args:
        name: name of the projection.
        version: version of the projection's fold. Each version has a stored state of its own.

    Raises:
        Unavailable: the server cannot be reached.
    """
    _check_projection(name, version)
    return await stored.load_projection(self.resources.log, self.resources.id, name, version)


async def save_projection(
    self: HasResources, name: str, version: int, state: bytes, *, cursor: Cursor | str, expected: int
) -> bool:
    """Store a projection's state and checkpoint in one step.

    Entries after the stored checkpoint are not trimmed, unless the archive has them or the trim is forced.

    Args:
        name: name of the projection. Names that begin with `lanebus.` are of caches that hold no trim back.
        version: version of the projection's fold. Each version has a stored state of its own.
        state: the folded state, encoded.
        cursor: cursor of the last entry that `state` includes.
        expected: position of the stored checkpoint from which the fold of `state` started; 0 if none was stored.

    Returns:
        Whether the state was stored. False if another process has stored a different checkpoint since then.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached. The state may be stored; a repeat is safe.
    """
    _check_projection(name, version)
    require_instance("state", state, bytes, "pass the encoded state, as bytes")
    require_count("expected", expected)
    place = Cursor.of(cursor, "cursor")
    return await stored.save_projection(
        self.resources.log, self.resources.id, name, version, state, cursor=place, expected=expected
    )


async def drop_projection(self: HasResources, name: str, version: int) -> bool:
    """Remove a stored projection, so that an old version no longer blocks trims.

    Args:
        name: name of the projection.
        version: version of the projection's fold.

    Returns:
        Whether a state of this version was stored.

    Raises:
        Unavailable: the server cannot be reached. The state may be removed.
    """
    _check_projection(name, version)
    return await stored.drop_projection(self.resources.log, self.resources.id, name, version)


async def save_checkpoint(self: HasResources, name: str, cursor: Cursor | str, *, rewind: bool = False) -> bool:
    """Store the cursor up to which a reader has processed every entry.

    Once a reader has a checkpoint, the entries after it are not trimmed, unless the archive has them or the trim is
    forced.

        cursor = await session.load_checkpoint("mirror") or START
        async for envelope in session.follow(after=cursor):
            await copy(envelope)
            await session.save_checkpoint("mirror", envelope.cursor)

    Args:
        name: name of the reader.
        cursor: cursor of the last entry that the reader has processed.
        rewind: store `cursor` even if it is before the stored cursor.

    Returns:
        Whether `cursor` was stored. False if the stored cursor is later and still valid. If the log lost entries
        before the stored cursor, an earlier `cursor` is accepted.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        LogRolledBack: the log lost entries that the reader has seen. Nothing was stored.
        CursorTrimmed: the cursor cannot be checked, because its entry was trimmed. Nothing was stored.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached. The cursor may be stored; a repeat is safe.
    """
    place = Cursor.of(cursor, "cursor")
    return await stored.save_checkpoint(
        self.resources.log, self.resources.id, name, place, rewind=rewind, archive=self.resources.archive
    )


async def load_checkpoint(self: HasResources, name: str) -> Cursor | None:
    """Return the stored cursor of a reader, or None if no cursor is stored.

    Args:
        name: name of the reader.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    return await stored.load_checkpoint(self.resources.log, self.resources.id, name)


async def drop_checkpoint(self: HasResources, name: str) -> bool:
    """Remove the checkpoint of a reader, so that the reader no longer blocks trims.

    Args:
        name: name of the reader.

    Returns:
        Whether the reader had a checkpoint.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached. The checkpoint may be removed.
    """
    return await stored.drop_checkpoint(self.resources.log, self.resources.id, name)


async def checkpoints(self: HasResources) -> Mapping[str, Cursor]:
    """Return the checkpoints that block trims, by holder.

    A holder is `r:<reader>`, `p:<projection>@<version>`, or `f:<session>` for a fork. Consumer groups also block trims,
    but are not listed here: a group stores its positions elsewhere.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return (await stored.checkpoints(self.resources.log, [self.resources.id]))[0]


def _check_projection(name: str, version: int) -> None:
    check_name(name)
    require_count("version", version)


# Leases of a session, for workers: acquire, renew and release, or hold one for an `async with` block; and wake-ups.


def lease(self: HasResources, holder: str, *, seconds: float = 30.0, wait: float | None = None) -> SessionLease:
    """Return a lease of this session for `async with`. The block acquires the lease, renews it, and releases it at the
    end.

        async with session.lease("host-1") as lease:
            await session.publish(message, epoch=lease.epoch)

    Only one holder runs a session's loop at a time. A nested block of the same object re-enters the lease. A block of
    another object waits, even if both objects have the same holder name.

    Args:
        holder: name of the holder, shown by monitoring. It need not be unique.
        seconds: how long the lease lasts without a renewal. After a crash the next holder waits up to this long.
        wait: maximum number of seconds to wait for another holder's lease; None means unlimited, 0 does not wait.
    """
    require_text("holder", holder, is_filled=True)
    require_seconds("seconds", seconds, is_positive=True)
    require_seconds("wait", wait, is_optional=True)
    return SessionLease(self.resources, holder, seconds=seconds, wait=wait)


async def acquire_lease(self: HasResources, owner: str, seconds: float) -> Lease | None:
    """Acquire the right to run this session's loop.

    If another owner holds the lease, there is no need to poll: the release of the lease wakes the workers. If the call
    is cancelled, the lease may have been acquired; it then expires after `seconds`.

    Args:
        owner: name of the worker. An owner that already holds the lease acquires it again, with the next epoch.
        seconds: how long the lease lasts unless it is renewed.

    Returns:
        The lease, or None if another owner's lease has not expired.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    require_text("owner", owner, is_filled=True)
    require_seconds("seconds", seconds, is_positive=True)
    return (await Leases(self.resources.log).take(self.resources.id, owner, seconds)).lease


async def renew_lease(self: HasResources, lease: Lease, seconds: float) -> bool:
    """Extend a lease.

    Args:
        lease: the lease, as `acquire_lease` returned it.
        seconds: how long the lease lasts from now.

    Returns:
        False if the lease is lost: it was released, another owner acquired it, or the session was erased.

    Raises:
        Unavailable: the server cannot be reached. The lease may be extended.
    """
    require_seconds("seconds", seconds, is_positive=True)
    return not await Leases(self.resources.log).renew((lease,), seconds)


async def release_lease(self: HasResources, lease: Lease) -> None:
    """Release a lease. Do nothing if the lease is already lost.

    The release wakes the workers if another owner tried to acquire the lease while it was held.

    Args:
        lease: the lease, as `acquire_lease` returned it.

    Raises:
        Unavailable: the server cannot be reached. The lease then expires.
    """
    await Leases(self.resources.log).release((lease,))


async def wait_for_wake_up(self: HasResources, after: Cursor | str) -> None:
    """Wait until an entry after a cursor wakes the workers. Spurious wake-ups are possible.

    Returns at once if the session already has an entry after the cursor. Otherwise returns a few milliseconds after
    the wake-up.

    Args:
        after: cursor of the last entry that the caller has seen.

    Raises:
        Closed: the bus was closed.
        Unavailable: the server cannot be reached when the call starts. A connection lost later is restored.
    """
    seen = Cursor.of(after)
    with self.resources.wake_ups.watch(self.resources.id) as watch:
        await self.resources.wake_ups.entered()
        watch.forget()  # the head is read after every wake-up received so far, so it covers them
        if (await self.resources.log.head(self.resources.id)).position <= seen.position:
            await watch.wait(seen.position)


_log = logging.getLogger(__name__)

_finishing: set[asyncio.Task[None]] = set()
"""tasks whose callers were cancelled. The set keeps them alive: the event loop has only weak references to tasks"""


class SessionLease:
    """The right to run a session's loop, held for the length of an `async with` block. `Session.lease` creates the
    object.

    Holding: the lease is renewed in the background, three times in `seconds`. After a crash, the lease expires.

    Re-entering: while a block of the object is open, another block of the same object shares the lease, in any task.
    The lease is released at the end of the last open block. A block of another object waits, even if both objects have
    the same holder name.

    Losing: another holder may take over a lease that was not renewed in time. `is_lost` is then true, and a publish
    with `epoch` raises `Fenced`. The block continues: use `wait_lost` to know when to stop.

    Cancellation: a block that is cancelled while it acquires the lease does not keep the lease. A block that is
    cancelled later releases the lease.
    """

    def __init__(
        self,
        resources: SessionResources,
        holder: str,
        *,
        seconds: float,
        wait: float | None,
        beats: int = 3,
        clean_up: float = 2.0,
    ) -> None:
        """See `Session.lease`.

        Args:
            beats: number of renewals within `seconds`.
            clean_up: longest time in seconds to wait for a release. After that, the lease is left to expire.
        """
        self.session = resources.id
        # The token is needed: with the holder's name alone, a process would take over the lease of another process
        # that uses the same name.
        self.owner = f"{holder}.{token_urlsafe(6)}"
        """the holder's name and a token that no other object has"""
        self._resources, self._leases = resources, Leases(resources.log)
        self._seconds, self._wait, self._pause, self._clean_up = seconds, wait, seconds / beats, clean_up
        self._entering = anyio.Lock()
        self._depth = 0
        self._lease: Lease | None = None
        self._lost = anyio.Event()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def lease(self) -> Lease:
        """The lease of the open block, even if it was lost.

        Raises:
            LeaseNotHeld: no block is open.
        """
        if self._lease is None:
            raise LeaseNotHeld(self.session)
        return self._lease

    @property
    def epoch(self) -> int:
        """The lease's epoch, to pass to `publish`. Raises LeaseNotHeld if no block is open."""
        return self.lease.epoch

    @property
    def is_held(self) -> bool:
        """Whether a block of this object is open, and this process has not noticed a loss of the lease."""
        return self._lease is not None and not self._lost.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether a block is open and the lease was lost: taken over, or not renewed for `seconds`."""
        return self._lease is not None and self._lost.is_set()

    async def wait_lost(self) -> None:
        """Wait until the lease is lost. Raises LeaseNotHeld if no block is open. Cancelling the wait is safe."""
        _ = self.lease
        self._resources.origin.check_running()
        await self._lost.wait()

    async def __aenter__(self) -> Self:
        """Acquire the lease. If another block of this object is open, share the lease of that block.

        Raises:
            LeaseHeld: another holder has the lease, and did not release it within `wait` seconds.
            Fenced: a block of this object is open, but its lease is lost.
            SessionErased: the session was erased.
            Closed: the bus was closed.
            Unavailable: the server cannot be reached.
        """
        self._resources.origin.check_running()
        async with self._entering:
            if self._lease is not None:
                if self._lost.is_set():
                    raise Fenced(self.session, self._lease.epoch, self._lease.epoch + 1)
            else:
                self._lost = anyio.Event()
                asked, self._lease = await self._acquire()
                # Not a task group: blocks of several tasks may share the lease and end in any order.
                self._renewal = asyncio.create_task(self._renew(self._lease, self._lost, asked))
            self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease at the end of the last open block. If the server does not answer, the lease expires."""
        self._depth -= 1
        if self._depth:
            return
        lease, renewal = self.lease, self._renewal
        self._lease = self._renewal = None
        if renewal is not None:
            renewal.cancel()
        await self._release(lease)

    async def _acquire(self) -> tuple[float, Lease]:
        """Acquire the lease. Return the time of the request, on the event loop's clock, and the lease."""
        asked, answer = await self._take()
        wake_ups = self._resources.wake_ups
        with anyio.move_on_after(self._wait), wake_ups.watch(self.session) as watch:
            while answer.lease is None:
                await wake_ups.entered()
                # A release wakes this wait. The time limit is for a release that came before the watch began.
                with anyio.move_on_after(min(answer.held_seconds, self._pause)):
                    await watch.wait(0)
                watch.forget()
                asked, answer = await self._take()
        if answer.lease is None:
            raise LeaseHeld(self.session, answer.held_seconds)
        return asked, answer.lease

    async def _take(self) -> tuple[float, LeaseAnswer]:
        asked = anyio.current_time()
        taking = asyncio.ensure_future(self._leases.take(self.session, self.owner, self._seconds))
        try:
            await asyncio.wait((taking,))
        except asyncio.CancelledError:
            await self._finish(self._undo(taking))  # the server may already have granted the lease
            raise
        return asked, taking.result()

    async def _undo(self, taking: asyncio.Future[LeaseAnswer]) -> None:
        lease = (await taking).lease
        if lease is not None:
            await self._leases.release((lease,))

    async def _release(self, lease: Lease) -> None:
        await self._finish(self._leases.release((lease,)))

    async def _finish(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` to its end even if the caller is cancelled, for at most `clean_up` seconds."""

        async def finish() -> None:
            try:
                with anyio.move_on_after(self._clean_up):
                    await work
            except BusError as error:
                _log.info("session %s: the lease is left to expire: %s", self.session, error)

        # `work` gets its own task, because a shielded scope does not protect it from a cancellation of this task.
        task = asyncio.ensure_future(finish())
        _finishing.add(task)
        task.add_done_callback(_finishing.discard)
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))

    async def _renew(self, lease: Lease, lost: anyio.Event, asked: float) -> None:
        """Renew the lease until this task is cancelled or the lease is lost.

        Args:
            asked: time of the request that acquired the lease, on the event loop's clock.
        """
        while True:
            await anyio.sleep(self._pause)
            now = anyio.current_time()
            try:
                with anyio.fail_after(self._pause):
                    is_lost = bool(await self._leases.renew((lease,), self._seconds))
                asked = now
            except (BusError, TimeoutError) as error:
                _log.debug("session %s: the lease was not renewed: %s", self.session, error)
                is_lost = anyio.current_time() - asked > self._seconds
            if is_lost:
                _log.warning("session %s: the lease was lost", self.session)
                lost.set()
                return


# Methods of `Session` for retention: archive and trim its entries, and erase the session.


async def archive(self: HasResources, *, before: int | None = None) -> Archived:
    """Copy entries into the archive. Nothing is trimmed.

    Several processes may archive a session at the same time. If the call is cancelled or fails, the archive holds
    whole segments, and a repeat continues after them.

    Args:
        before: first position not to archive. None archives all entries that the log holds when the call starts.

    Raises:
        NoArchive: the bus was opened without an archive.
        SessionErased: the session was erased.
        LogRolledBack: the log lost entries that are already archived.
        ArchiveDamaged: the last segment has changed, or the store does not return what was written.
        EntriesMissing: a foreign client deleted an entry of the log.
        MessageTooLarge: an entry of a foreign client is larger than a segment may be.
        SetupError: the store refused access.
        Unavailable: the server or the store cannot be reached.
    """
    require_count("before", before, is_optional=True)
    return await archive_session(_archive_of(self.resources), self.resources.id, before)


@resumable
async def check_archive(self: HasResources) -> AsyncGenerator[ArchiveProblem, None]:
    """Read this session's whole archive and yield each problem found. Changes nothing.

    Raises:
        NoArchive: the bus was opened without an archive.
        SetupError: the store refused access.
        Unavailable: the server or the store cannot be reached.
    """
    async for problem in check_chain(_archive_of(self.resources), self.resources.id):
        yield problem


async def trim(
    self: HasResources,
    before: int,
    *,
    force: bool = False,
    dry_run: bool = False,
    agent: str | None = None,
    known: Collection[str] | None = None,
) -> Trimmed:
    """Remove the entries before a position from both lanes, unless a holder still needs one of these entries.

    The remaining entries keep their positions. A repeat of a trimmed publish with the same `key` is still a duplicate.
    A reader that starts before the first remaining entry reads from the archive. Without an archive, the reader gets
    `CursorTrimmed`.

    Holders, and the entries that each holder needs:

    - A consumer group needs the entries that it has not acknowledged.
    - A reader or projection needs the entries after its checkpoint, unless the archive has these entries.
    - A fork needs the entries that it shares with this session, unless the archive has these entries.
    - The workers of the session's agent need all entries of the LLM lane, unless the archive has these entries. Workers
      build the context from the first entry. A session in which no worker has run a loop has no such holder.

    So archive a session before you trim it, and open the workers' buses with the archive. If the session is a fork,
    only the fork's own entries are removed.

    A projection without a stored state is folded from the first entry. After a trim, this fold needs the archive.
    Without an archive, the fold raises `CursorTrimmed`.

    The usage, turns and session views also work without the first entry. Without a stored state, these views count from
    the first remaining entry, and report this position. `lanebus trim` stores the views first, so they stay complete.

    A trim runs in steps. A cancelled trim may have removed some of the entries; a repeat removes the others.

    Args:
        before: first position to keep. The position after the session's last entry removes all entries.
        force: remove the entries even if holders need them. In that case, the same step appends an extension message
            `session.trimmed` with the data `{before, forced, passed: {holder: position}}`.
        dry_run: change nothing; return the entries that a trim would remove, and the holders that need these entries.
        agent: trim only while the session belongs to this agent. None means any agent.
        known: with `force`, the holders that you know of, such as those of a dry run. A fork that is not among them is
            not passed: it holds the trim back. None passes all.

    Raises:
        InvalidArgument: `before` is no integer of 0 or more, or a flag is neither True nor False. Nothing was trimmed.
        NoSuchPosition: `before` is more than one position after the session's last entry. Nothing was trimmed.
        TrimRefused: a holder needs some of the entries. Nothing was trimmed.
        WrongAgent: the session belongs to another agent than `agent`, perhaps since a step that trimmed some entries.
        InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`. Nothing was trimmed.
        SessionErased: the session was erased.
        ForgedEntry: entries of foreign clients still prevent the append of `session.trimmed`.
        Unavailable: the server cannot be reached. Some of the entries may be trimmed.
    """
    require_flag("force", force)
    require_flag("dry_run", dry_run)
    require_count("before", before)
    named = None if agent is None else check_agent(agent)
    head = await self.resources.log.head(self.resources.id)
    if before > head.position + 1 and not head.is_erased:
        raise NoSuchPosition(self.resources.id, before, head.position)
    # The live deltas of ended messages are removed before the trim, because afterwards the log no longer shows that
    # these messages have ended.
    if not dry_run:
        await self.resources.preview_writer.drop_ended(self.resources.id)
    holders = await context_holder(self.resources.log, self.resources.id, before)
    return await retention.trim(
        self.resources.log,
        self.resources.id,
        before,
        force=force,
        dry_run=dry_run,
        holders=holders,
        agent=named,
        known=known,
    )


async def erase(self: HasResources, *, media: bool = False, force: bool = False, rewrite: bool = False) -> Erased:
    """Remove this session for good, and leave a tombstone.

    Removes the session's entries, live deltas, publish keys, projections, checkpoints and archived entries, and its
    references in shared keys. The tombstone keeps the id, so a late writer cannot create the session again. From then
    on every publish, read and follow raises `SessionErased`, also those in progress.

    The first step makes the session unreadable. If the call is cancelled or fails after that step, repeat the call to
    finish.

    The server's append-only file keeps the entries until it is rewritten. Replicas, snapshots, backups and the server's
    slow log keep them too. The id itself stays in the key of the tombstone, and in each fork that lost shared
    entries because of `force`.

    Args:
        media: also delete media that no other session refers to. This reads every log, which is slow. Media that
            another session publishes at the same moment may be lost.
        force: erase even if forks share the session's entries; the forks can then no longer read these entries. Also
            erase if the archive of this bus holds none of the session's archived entries.
        rewrite: have every primary rewrite its append-only file, and return after that. A rewrite that is under way
            is waited for first, because it may have copied the session already. Replicas rewrite files of their own.
            `LogBounds.rewrite_seconds` bounds the wait.

    Returns:
        The media that were deleted.

    Raises:
        InvalidArgument: an argument is neither True nor False. Nothing was removed.
        EraseRefused: forks share the session's entries. Nothing was removed.
        NoArchive: the bus was opened without an archive, and entries of this session are archived; with `media`,
            entries of any session. Nothing was removed.
        ArchiveDamaged: the archive holds none of this session's archived entries; it may be the wrong archive. Nothing
            was removed. With `media`, this error also means that an archive could not be searched for references. The
            session is then erased and no media are deleted; repeat the call without `media`.
        RewriteUnfinished: the session is erased, but a server's file was not rewritten, because that failed or took
            too long. Call again.
        Unavailable: the server or a store cannot be reached. Call again.
        SetupError: a store refused access.
    """
    require_flag("media", media)
    require_flag("force", force)
    require_flag("rewrite", rewrite)
    store = self.resources.media if media else None
    return await retention.erase(
        self.resources.log, self.resources.id, force=force, media=store, archive=self.resources.archive, rewrite=rewrite
    )


def _archive_of(resources: SessionResources) -> Archive:
    if resources.archive is None:
        raise NoArchive(resources.id)
    return resources.archive
