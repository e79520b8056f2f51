"""Check whether a log still holds the entries that a reader saw.

Each entry has the token of the incarnation that wrote it. A cursor is valid if the entry at its position has the
cursor's token. A head lists the newest incarnations, which is enough to check most cursors.

The positions of an incarnation are contiguous, and its token contains its start. So bisection finds its end.

A log may also go back within one incarnation: an operator restores its keys into the server that runs, or swaps them
with a copy. So a cursor also has the proof of its entry. Nothing tells then which entries before it are unchanged,
except those of earlier incarnations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.errors import CursorTrimmed, LogRolledBack
from lanebus.bus.log.head import start_of
from lanebus.bus.log.lineage import mark_at, written_here
from lanebus.bus.wire.codec import UNMARKED, mark_of, position_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.lineage import FoundMark
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry, Mark

__all__ = ("common_position", "cursor_at", "require_same_log")


async def common_position(
    log: Log,
    head: SessionHead,
    cursor: Cursor,
    archive: ArchiveReader | None = None,
    *,
    known: Mapping[int, FoundMark] | None = None,
) -> int:
    """Return the last position up to which the log certainly holds the entries that a reader saw.

    Of an entry that was trimmed, only the incarnation is checked.

    Args:
        log: the log to read.
        head: the session's head.
        cursor: the reader's cursor.
        archive: the archive, for trimmed entries; None means no archive.
        known: by position, the entries of the session's own streams that the caller has read with the head. None means
            none.

    Returns:
        The cursor's position, unless the log was rolled back. 0 if the log has no entry of the cursor's incarnation.

    Raises:
        CursorTrimmed: neither the log nor the archive has the entry that the check needs.
        Unavailable: the server or the archive cannot be reached.
    """
    found, known = head.common_position(cursor), known or {}
    if found is not None:
        return found
    token, start = cursor.incarnation, start_of(cursor.incarnation)
    if any(each.token == token for each in head.incarnations):
        if cursor.position > head.position:
            written = known.get(cursor.position) or await written_here(log, head.session, cursor.position)
            return max(start, 0) if written.present == token else head.position
        mark = await _mark_at(log, head, cursor.position, archive, known)
        return max(start, 0) if mark is not None and _differs(mark, cursor) else cursor.position
    # The listed incarnations wrote all later positions, and the cursor's incarnation is not listed.
    listed = head.incarnations[0].start if head.incarnations else head.position
    high = min(cursor.position, head.position, listed)
    if not 0 <= start < high:
        return 0
    mark = await _mark_at(log, head, high, archive, known)
    if mark is not None and mark.token == token:
        return start if high == cursor.position and _differs(mark, cursor) else high
    if mark is None and high == cursor.position:
        raise CursorTrimmed(head.session, str(cursor), head.first_kept)
    low = start + 1
    if await _token_at(log, head, low, archive) != token:
        low = max(low, head.trimmed)
        if low >= high or await _token_at(log, head, low, archive) != token:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        if await _token_at(log, head, middle, archive) == token:
            low = middle
        else:
            high = middle
    return low


def _differs(mark: Mark, cursor: Cursor) -> bool:
    """Return whether the entry at the cursor's position is not the one that the reader saw."""
    return mark.token != cursor.incarnation or bool(cursor.proof and mark.proof and mark.proof != cursor.proof)


async def _mark_at(
    log: Log, head: SessionHead, position: int, archive: ArchiveReader | None, known: Mapping[int, FoundMark]
) -> Mark | None:
    if position in known and position > head.own_start.position and known[position].mark is not None:
        return known[position].mark
    return await mark_at(log, head, position, archive, with_proof=True)


async def _token_at(log: Log, head: SessionHead, position: int, archive: ArchiveReader | None) -> str | None:
    mark = await mark_at(log, head, position, archive)
    return None if mark is None else mark.token


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
    token, proof = head.incarnation_of(position), head.proof_of(position)
    if token is None or not proof:
        for page in pages:
            for entry in reversed(page):
                if (place := position_of(entry)) <= position:
                    if place == position and entry[0].endswith(b"-0"):
                        token, proof = mark_of(entry)
                    break
    if token is None:  # the entry is in a lane that was not read
        token, proof = await mark_at(log, head, position, archive) or UNMARKED
    return Cursor(position, 0, token, proof)
