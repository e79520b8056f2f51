"""The lineage of a fork: which session holds which part of what the fork reads.

A fork's head names its parent and the cursor of the last entry they share. The parent may be a fork as well.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, ParentErased
from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import token_in
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log

__all__ = ("Part", "lineage", "written_by")

_WRITTEN_BY = Script("written_by")


class Part(NamedTuple):
    """A stretch of what a fork shares, and the session in whose streams it stands."""

    head: SessionHead
    """of the fork, in whose name it is read"""
    holder: str
    end: int
    """the last position that is wanted of it"""
    last: int
    """its last position; what is behind it stands elsewhere"""
    proof: Cursor
    """that the holder must still hold up to `end`: of the last entry that was shared"""

    def require(self, holder: SessionHead, after: int) -> None:
        """Look whether the session still holds what was forked.

        Args:
            after: the last position that the reader has.

        Raises:
            ParentErased: it was erased.
        """
        if holder.is_erased:
            raise ParentErased(self.head.session, str(Cursor(after)), self.last + 1, self.holder)


async def lineage(log: Log, head: SessionHead, after: int, until: int) -> list[Part]:
    """Where the entries of a fork behind `after` and up to `until` stand that are not its own, the first ones first.

    Raises:
        ParentErased: one of those that hold them was erased.
        Unavailable: the server cannot be reached.
    """
    parts: list[Part] = []
    child, proof = head, head.cursor
    while child.origin is not None and after < min(until, child.origin.position):
        proof = min(proof, child.origin.cursor, key=_position)
        child = await log.head(child.origin.session)
        part = Part(head, child.session, min(until, proof.position), proof.position, proof)
        if child.is_erased:
            part.require(child, after)
        if child.own_start.position < part.end:
            parts.append(part)
    return parts[::-1]


async def written_by(log: Log, head: SessionHead, position: int, past: ArchiveReader | None = None) -> str | None:
    """Return which incarnation wrote the entry at a position; None if the entry is nowhere any more.

    Args:
        past: where to look for an entry that was trimmed away.

    Raises:
        Unavailable: the server or the archive cannot be reached.
    """
    if (token := head.incarnation_of(position)) is not None:
        return token
    if head.origin is not None and position <= head.origin.position:
        try:
            (part,) = await lineage(log, head, position - 1, position)
        except ParentErased:
            return None
        return await written_by(log, await log.head(part.holder), position, past)
    if position > head.trimmed:
        return await _written_here(log, head.session, position)
    if past is None:
        return None
    try:
        async with aclosing(past.pages(head, tuple(Lane), position - 1, position)) as pages:
            async for page in pages:
                return page.end.incarnation or None
    except (CursorTrimmed, ArchiveDamaged):
        return None
    return None


async def _written_here(log: Log, session: str, position: int) -> str | None:
    """Return which incarnation wrote the entry at a position of the session's own streams; None if it is in neither."""
    names = [log.keys.lane(session, lane) for lane in Lane]
    header = cast("bytes | None", await log.run(_WRITTEN_BY, names, (position,)))
    return None if header is None else token_in(header)


def _position(cursor: Cursor) -> int:
    return cursor.position
