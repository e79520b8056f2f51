"""Whether a log is still the one that a reader saw.

Each entry names the incarnation that wrote it, so a cursor is honest if the entry at its position carries the cursor's
token. A head lists the newest incarnations, which proves most cursors without a look at any entry. The positions that
one incarnation wrote follow each other, and its token names where they begin: where it ended is found by bisection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bus.errors import CursorTrimmed, LogRolledBack
from bus.fork import written_by
from bus.head import start_of

if TYPE_CHECKING:
    from bus.envelope import Cursor
    from bus.head import SessionHead
    from bus.log import Log
    from bus.past import Past

__all__ = ("agreed", "require_same_log")


async def agreed(log: Log, head: SessionHead, cursor: Cursor, past: Past | None = None) -> int:
    """Return up to which position the log is surely the one that the cursor's reader saw.

    Args:
        past: where to look for an entry that was trimmed away.

    Returns:
        The cursor's own position, unless the log lost its end. 0 if nothing of the cursor's incarnation is in the log.

    Raises:
        CursorTrimmed: the entry that would prove it is in neither the log nor the archive.
        Unavailable: the server or the archive cannot be reached.
    """
    found = head.agreed(cursor)
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


async def require_same_log(log: Log, head: SessionHead, cursor: Cursor, past: Past | None = None) -> None:
    """Look whether the log holds what the cursor's reader has seen.

    Raises:
        LogRolledBack: it does not.
        CursorTrimmed, Unavailable: as for `agreed`.
    """
    if (found := await agreed(log, head, cursor, past)) < cursor.position:
        raise LogRolledBack(head.session, cursor.position, found)
