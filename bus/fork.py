"""Forks: sessions that share the beginning of another one without a copy of it, and how that beginning is found.

A fork's head names its parent and the cursor of the last entry they share; its own entries go on behind it in streams
of its own. The parent may be a fork as well. Which session holds which part of what a fork reads is its lineage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bus.envelope import Cursor
from bus.errors import LogRolledBack, ParentErased, SessionErased, SessionExists

if TYPE_CHECKING:
    from bus.head import SessionHead
    from bus.log import Log

__all__ = ("Part", "begin_fork", "lineage")


async def begin_fork(log: Log, parent: str, child: str, at: int | None) -> None:
    """Make `child` a fork of `parent` at a position; None is its last one. Asked again, the same fork changes nothing.

    The two may be on different servers of a cluster. So the parent first promises to keep what they share, then the
    child begins. In between it may be cancelled: what is left is the promise, and the next try finds it.

    Raises:
        SessionExists: there is such a session, and it is not this fork.
        SessionErased: the parent was erased, or there was a session of the child's id that was.
        NoSuchPosition: the parent does not reach so far.
        CursorTrimmed: the parent has nothing up to there any more.
        Unavailable: the server cannot be reached; the fork may be there.
    """
    shared = await log.pin(parent, child, at)
    try:
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
    end: Cursor
    """of the last entry that is wanted of it, as the fork knows it"""
    last: int
    """its last position; what is behind it stands elsewhere"""

    def under(self, holder: SessionHead) -> SessionHead:
        """The holder's head under the fork's name: as far as this part goes, it is the fork's log."""
        return holder._replace(session=self.head.session, incarnations=self.head.incarnations)

    def require(self, holder: SessionHead, after: int) -> None:
        """Look whether the session still holds what was forked.

        Args:
            after: the last position that the reader has.

        Raises:
            ParentErased: it was erased.
            LogRolledBack: it lost its end before the fork, and may have grown again to another one.
        """
        if holder.is_erased:
            raise ParentErased(self.head.session, str(Cursor(after)), self.last + 1, self.holder)
        if not holder.still_holds(self.end):
            raise LogRolledBack(self.head.session, self.end.position, holder.agreed(self.end))


async def lineage(log: Log, head: SessionHead, after: int, until: int) -> list[Part]:
    """Where the entries of a fork behind `after` and up to `until` stand that are not its own, the first ones first.

    Raises:
        ParentErased: one of those that hold them was erased.
        Unavailable: the server cannot be reached.
    """
    parts: list[Part] = []
    child, last = head, head.position
    while child.origin is not None and after < min(until, child.origin.position):
        last = min(last, child.origin.position)
        child = await log.head(child.origin.session)
        part = Part(head, child.session, head.cursor_at(min(until, last)), last)
        if child.is_erased:
            part.require(child, after)
        if child.own_start.position < part.end.position:
            parts.append(part)
    return parts[::-1]
