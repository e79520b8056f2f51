"""How long `Session`'s entries are kept: archive, trim and erase. Each function is a method of it."""

from collections.abc import AsyncGenerator

from lanebus.bus.archive.archive import Archive
from lanebus.bus.archive.archiver import Archived, archive_session
from lanebus.bus.archive.chain import ArchiveProblem, check_chain
from lanebus.bus.errors import NoArchive
from lanebus.bus.retention import erase as erasure
from lanebus.bus.retention import trim as retention
from lanebus.bus.retention.erase import Erased
from lanebus.bus.retention.trim import Trimmed
from lanebus.bus.session.resources import HasResources, SessionResources

__all__ = ("archive", "check_archive", "erase", "trim")


async def archive(self: HasResources, *, before: int | None = None) -> Archived:
    """Copy everything below a position into the archive; None is all there is now. Nothing is trimmed.

    Stopped anywhere it leaves whole segments, and a repeat continues. Any number of processes may do it at once.

    Raises:
        NoArchive: the bus was opened without one.
        SessionErased: there is nothing to archive.
        LogRolledBack: the log lost its end below what is archived already.
        ArchiveDamaged: the last segment is not what it was, or the store does not return what was written.
        CursorTrimmed: a foreign client deleted an entry in the middle.
        MessageTooLarge: a foreign entry is larger than a segment may be.
        SetupError: the store refused access.
    """
    return await archive_session(_archive_of(self.resources), self.resources.id, before)


async def check_archive(self: HasResources) -> AsyncGenerator[ArchiveProblem, None]:
    """Read this session's whole archive, and yield what is wrong with it; nothing is changed. Raise NoArchive if
    the bus has none, and SetupError if its store refused access."""
    async for problem in check_chain(_archive_of(self.resources), self.resources.id):
        yield problem


async def trim(self: HasResources, before: int, *, force: bool = False, dry_run: bool = False) -> Trimmed:
    """Remove everything before a position from both lanes, once nothing needs it any more.

    Positions stay as they were, and a caller's key of a trimmed entry stays a repeat. A reader whose cursor is further
    back gets `CursorTrimmed`.

    A context is built from the first entry, and so is a projection that is not stored. After a trim that needs an
    archive that has the beginning; without one it is refused with `CursorTrimmed`. The usage, turns and line of a
    session that are only looked at then count from the first kept entry on, and say so. `lanebus trim` stores them
    before it trims, so that they stay complete.

    A worker of a group needs what it has not handled yet. Readers, projections and forks need what is after their
    checkpoints, unless the archive has it. The entries that a fork shares are its parent's: a trim of the fork removes
    only its own. A trim that is stopped has trimmed less.

    Args:
        before: the first position to keep; beyond the end, all that there is now is trimmed.
        force: pass those that still need it, which adds an extension `session.trimmed` {before, forced,
            passed: {holder: position}} in the same step. If nothing needs it, nothing is added.
        dry_run: change nothing, and return what would be trimmed and who needs it.

    Raises:
        TrimRefused: a holder still needs some of it; nothing was trimmed.
        SessionErased: there is nothing to trim.
        Unavailable: the server cannot be reached; some of it may have been trimmed.
    """
    # Entries that are added from now on stay. Live deltas of ended messages go first: after the trim, the log does
    # not show any more that their messages have ended.
    keep = min(before, (await self.resources.log.head(self.resources.id)).position + 1)
    if not dry_run:
        await self.resources.preview_writer.drop_ended(self.resources.id)
    return await retention.trim(self.resources.log, self.resources.id, keep, force=force, dry_run=dry_run)


async def erase(self: HasResources, *, media: bool = False, force: bool = False, rewrite: bool = False) -> Erased:
    """Remove everything of this session for good, and leave a tombstone.

    That is its entries, live deltas, callers' keys, projections, checkpoints, and what names it elsewhere. The
    tombstone keeps its id, so that no late writer brings it back: every publish, read and follow raises
    `SessionErased`, also those that are under way.

    The server's own file, its copies and its slow log keep the past: the file until it is rewritten, backups as long as
    you keep them. If it is stopped, the session is gone already, and a second call finishes the rest.

    Args:
        media: also the media that no other session names. Every log is read for that, which is slow. Media that
            another session publishes at this very moment with the same content may be lost.
        force: even if forks share its entries, which then cannot be read any more; or if nothing of what was
            archived of it is in this archive.
        rewrite: have the server begin to rewrite its file without what was erased; it ends some time later.

    Raises:
        EraseRefused: forks share its entries; nothing was removed.
        NoArchive: some of it is in an archive, or with `media` some of another session, and the bus was opened
            without it; nothing was removed.
        ArchiveDamaged: nothing of what was archived of it is in this archive, perhaps as it is another one;
            nothing was removed. Or with `media`, an archive cannot tell which media are named in it: the session is
            gone, no media are; call it again without `media`.
        Unavailable: the server or the media store cannot be reached, or a rewrite is running: call it again.
        SetupError: the media store refused access.
    """
    store = self.resources.media if media else None
    return await erasure.erase(
        self.resources.log, self.resources.id, force=force, media=store, archive=self.resources.archive, rewrite=rewrite
    )


def _archive_of(resources: SessionResources) -> Archive:
    if resources.archive is None:
        raise NoArchive(resources.id)
    return resources.archive
