"""Methods of `Session` for retention: archive and trim its entries, and erase the session."""

from collections.abc import AsyncGenerator, Collection

from lanebus.bus.archive.archive import Archive
from lanebus.bus.archive.archiver import Archived, ArchiveProblem, archive_session, check_chain
from lanebus.bus.concurrency import resumable
from lanebus.bus.errors import NoArchive, NoSuchPosition, require_count, require_flag
from lanebus.bus.retention import erase as erasure
from lanebus.bus.retention import trim as retention
from lanebus.bus.retention.erase import Erased
from lanebus.bus.retention.trim import Trimmed, context_holder
from lanebus.bus.session.resources import HasResources, SessionResources
from lanebus.bus.wire.keys import check_agent


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
    return await erasure.erase(
        self.resources.log, self.resources.id, force=force, media=store, archive=self.resources.archive, rewrite=rewrite
    )


def _archive_of(resources: SessionResources) -> Archive:
    if resources.archive is None:
        raise NoArchive(resources.id)
    return resources.archive
