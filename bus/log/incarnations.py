"""Whether a log is still the one that a reader saw.

Each entry names the incarnation that wrote it, so a cursor is honest if the entry at its position carries the cursor's
token. A head lists the newest incarnations, which proves most cursors without a look at any entry. The positions that
one incarnation wrote follow each other, and its token names where they begin: where it ended is found by bisection.
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


async def common_position(log: Log, head: SessionHead, cursor: Cursor, past: ArchiveReader | None = None) -> int:
    """Return up to which position the log is surely the one that the cursor's reader saw.

    Args:
        past: where to look for an entry that was trimmed away.

    Returns:
        The cursor's own position, unless the log lost its end. 0 if nothing of the cursor's incarnation is in the log.

    Raises:
        CursorTrimmed: the entry that would prove it is in neither the log nor the archive.
        Unavailable: the server or the archive cannot be reached.
    """
    found = head.common_position(cursor)
    if found is not None:
        return found
    token, start = cursor.incarnation, start_of(cursor.incarnation)
    # What is above was written by incarnations that the head lists, and the cursor's is none of them.
    listed = head.incarnations[0].start if head.incarnations else head.position
    high = min(cursor.position, head.position, listed)
    if not 0 <= start < high:
        return 0
    writer = await written_by(log, head, high, past)
    if writer == token:
        return high
    if writer is None and high == cursor.position:
        raise CursorTrimmed(head.session, str(cursor), head.first_kept)
    low = start + 1
    if await written_by(log, head, low, past) != token:
        low = max(low, head.trimmed)
        if low >= high or await written_by(log, head, low, past) != token:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        if await written_by(log, head, middle, past) == token:
            low = middle
        else:
            high = middle
    return low


async def require_same_log(log: Log, head: SessionHead, cursor: Cursor, past: ArchiveReader | None = None) -> None:
    """Look whether the log holds what the cursor's reader has seen.

    Raises:
        LogRolledBack: it does not.
        CursorTrimmed, Unavailable: as for `common_position`.
    """
    if (found := await common_position(log, head, cursor, past)) < cursor.position:
        raise LogRolledBack(head.session, cursor.position, found)


async def cursor_at(
    log: Log, head: SessionHead, position: int, pages: Iterable[Sequence[Entry]], past: ArchiveReader | None = None
) -> Cursor:
    """Return the cursor of a reader that has seen all up to a position.

    Args:
        head: read before or with the pages.
        pages: entries that were read, in order; the one at the position may be among them.
    """
    token = head.incarnation_of(position)
    if token is None:
        for page in pages:
            for entry in reversed(page):
                if (place := position_of(entry)) <= position:
                    if place == position:
                        token = token_of(entry)
                    break
    if token is None:  # it is in a lane that was not read
        token = await written_by(log, head, position, past)
    return Cursor(position, 0, token or "")
