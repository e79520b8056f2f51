"""Forks: sessions that share the beginning of another one without a copy of it, and how that beginning is found.

A fork's head names its parent and the cursor of the last entry they share; its own entries go on behind it in streams
of its own. The parent may be a fork as well. Which session holds which part of what a fork reads is its lineage.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from bus.envelope import Cursor
from bus.errors import ArchiveDamaged, CursorTrimmed, ParentErased, SessionErased, SessionExists
from bus.messages.lanes import Lane

if TYPE_CHECKING:
    from bus.head import SessionHead
    from bus.log import Log
    from bus.past import Past

__all__ = ("Part", "begin_fork", "lineage", "written_by")


async def begin_fork(log: Log, parent: str, child: str, at: int | None, past: Past | None = None) -> None:
    """Make `child` a fork of `parent` at a position; None is its last one. Asked again, the same fork changes nothing.

    The two may be on different servers of a cluster. So the parent first promises to keep what they share, then the
    child begins. In between it may be cancelled: what is left is the promise, and the next try finds it.

    Args:
        past: where to look for the entry to fork at, if the parent was trimmed beyond it.

    Raises:
        SessionExists: there is such a session, and it is not this fork.
        SessionErased: the parent was erased, or there was a session of the child's id that was.
        NoSuchPosition: the parent does not reach so far.
        CursorTrimmed: the parent has nothing up to there any more.
        Unavailable: the server cannot be reached; the fork may be there.
    """
    shared = await log.pin(parent, child, at)
    try:
        if not shared.cursor.incarnation and shared.cursor.position:
            head = await log.head(parent)
            token = await written_by(log, head, shared.cursor.position, past)
            shared = shared.ending_with(token or "")
        await log.fork(parent, child, shared)
    except SessionExists as taken:
        if taken.parent != parent:  # else the promise is that fork's, at another position
            await log.unpin(parent, child)
        raise
    except SessionErased:
        await log.unpin(parent, child)
        raise


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


async def written_by(log: Log, head: SessionHead, position: int, past: Past | None = None) -> str | None:
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
        return await log.written_by(head.session, position)
    if past is None:
        return None
    try:
        async with aclosing(past.pages(head, tuple(Lane), position - 1, position)) as pages:
            async for page in pages:
                return page.end.incarnation or None
    except (CursorTrimmed, ArchiveDamaged):
        return None
    return None


def _position(cursor: Cursor) -> int:
    return cursor.position
