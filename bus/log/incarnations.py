"""Check whether a log still holds the entries that a reader saw.

Each entry has the token of the incarnation that wrote it. A cursor is valid if the entry at its position has the
cursor's token. A head lists the newest incarnations, which is enough to check most cursors.

The positions of an incarnation are contiguous, and its token contains its start. So bisection finds its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.errors import CursorTrimmed, LogRolledBack
from lanebus.bus.log.head import start_of
from lanebus.bus.log.lineage import written_by
from lanebus.bus.wire.codec import position_of, token_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry

__all__ = ("common_position", "cursor_at", "require_same_log")


async def common_position(log: Log, head: SessionHead, cursor: Cursor, archive: ArchiveReader | None = None) -> int:
    """Return the last position up to which the log still holds the entries that a reader saw.

    Args:
        log: the log to read.
        head: the session's head.
        cursor: the reader's cursor.
        archive: the archive, for trimmed entries; None means no archive.

    Returns:
        The cursor's position, unless the log was rolled back. 0 if the log has no entry of the cursor's incarnation.

    Raises:
        CursorTrimmed: neither the log nor the archive has the entry that the check needs.
        Unavailable: the server or the archive cannot be reached.
    """
    found = head.common_position(cursor)
    if found is not None:
        return found
    token, start = cursor.incarnation, start_of(cursor.incarnation)
    # The listed incarnations wrote all later positions, and the cursor's incarnation is not listed.
    listed = head.incarnations[0].start if head.incarnations else head.position
    high = min(cursor.position, head.position, listed)
    if not 0 <= start < high:
        return 0
    writer = await written_by(log, head, high, archive)
    if writer == token:
        return high
    if writer is None and high == cursor.position:
        raise CursorTrimmed(head.session, str(cursor), head.first_kept)
    low = start + 1
    if await written_by(log, head, low, archive) != token:
        low = max(low, head.trimmed)
        if low >= high or await written_by(log, head, low, archive) != token:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        if await written_by(log, head, middle, archive) == token:
            low = middle
        else:
            high = middle
    return low


async def require_same_log(log: Log, head: SessionHead, cursor: Cursor, archive: ArchiveReader | None = None) -> None:
    """Check that the log still has the entries that the reader of a cursor saw.

    Raises:
        LogRolledBack: the log lost some of these entries.
        CursorTrimmed: as for `common_position`.
        Unavailable: as for `common_position`.
    """
    if (found := await common_position(log, head, cursor, archive)) < cursor.position:
        raise LogRolledBack(head.session, cursor.position, found)


async def cursor_at(
    log: Log, head: SessionHead, position: int, pages: Iterable[Sequence[Entry]], archive: ArchiveReader | None = None
) -> Cursor:
    """Return the cursor of a reader that has seen all entries up to a position.

    Args:
        log: the log to read.
        head: the session's head, read before or with the pages.
        position: the reader's position.
        pages: entries that were already read, in order. If the entry at `position` is among them, it is not read again.
        archive: the archive, for trimmed entries; None means no archive.
    """
    token = head.incarnation_of(position)
    if token is None:
        for page in pages:
            for entry in reversed(page):
                if (place := position_of(entry)) <= position:
                    if place == position:
                        token = token_of(entry)
                    break
    if token is None:  # the entry is in a lane that was not read
        token = await written_by(log, head, position, archive)
    return Cursor(position, 0, token or "")
