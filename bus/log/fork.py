"""Forks: sessions that share the beginning of another one without a copy of it.

A fork's head names its parent and the cursor of the last entry they share. The fork's own entries go on behind it in
streams of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import CursorTrimmed, NoSuchPosition, SessionErased, SessionExists
from lanebus.bus.log.head import Incarnation, read_incarnations, start_of
from lanebus.bus.log.lineage import written_by
from lanebus.bus.log.script import Script
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.log import Log

__all__ = ("begin_fork", "unpin")

_PIN, _FORK = Script("pin"), Script("fork")


class _Shared(NamedTuple):
    """What a fork shares with its parent, as the parent stood when it promised to keep it."""

    cursor: Cursor
    """of the last entry"""
    incarnations: tuple[Incarnation, ...]
    trimmed: int
    """the highest position of it that cannot be read any more; 0 if all can"""

    def ending_with(self, token: str) -> _Shared:
        """Return the same, once it is known which incarnation wrote the last entry; "" if nobody knows."""
        listed = (Incarnation(token, start_of(token)),) if token else ()
        return self._replace(cursor=self.cursor._replace(incarnation=token), incarnations=listed)


async def begin_fork(log: Log, parent: str, child: str, at: int | None, past: ArchiveReader | None = None) -> None:
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
    shared = await _pin(log, parent, child, at)
    try:
        if not shared.cursor.incarnation and shared.cursor.position:
            head = await log.head(parent)
            token = await written_by(log, head, shared.cursor.position, past)
            shared = shared.ending_with(token or "")
        await _begin(log, parent, child, shared)
    except SessionExists as taken:
        if taken.parent != parent:  # else the promise is that fork's, at another position
            await unpin(log, parent, child)
        raise
    except SessionErased:
        await unpin(log, parent, child)
        raise


async def _pin(log: Log, parent: str, child: str, at: int | None) -> _Shared:
    """Have a session keep what a fork at a position shares with it. None is its last position.

    Raises:
        NoSuchPosition, CursorTrimmed, SessionErased: it cannot; nothing was noted.
    """
    names = (log.keys.head(parent), log.keys.checkpoints(parent))
    reply = await log.run(_PIN, names, (f"f:{child}", "" if at is None else at))
    if isinstance(reply, bytes):
        word, _, number = reply.decode().partition(" ")
        if word == "erased":
            raise SessionErased(parent)
        if word == "trimmed":
            raise CursorTrimmed(parent, str(Cursor(at or 0)), int(number) + 1)
        raise NoSuchPosition(parent, at or 0, int(number))
    position, incarnations, trimmed = cast("tuple[int, bytes, int]", reply)
    shared = tuple(each for each in read_incarnations(incarnations) if each.start < position)
    return _Shared(Cursor(position, 0, shared[-1].token if shared else ""), shared, trimmed)


async def unpin(log: Log, parent: str, child: str) -> None:
    """Release what a session keeps for a fork."""
    await log.call("HDEL", log.keys.checkpoints(parent), f"f:{child}")


async def _begin(log: Log, parent: str, child: str, shared: _Shared) -> None:
    """Begin a session as a fork of another one that keeps what they share.

    Raises:
        SessionExists, SessionErased: the id is taken; nothing was written.
    """
    keys, cursor = log.keys, shared.cursor
    names = (keys.head(child), keys.checkpoints(child), keys.sessions(keys.bucket(child)))
    incarnations = " ".join(each.token for each in shared.incarnations)
    arguments = (child, parent, str(cursor), cursor.position, incarnations, shared.trimmed)
    reply = await log.run(_FORK, names, arguments)
    if reply == b"erased":
        raise SessionErased(child)
    if reply != b"forked":
        _, other, begin = (word.decode() for word in cast("list[bytes]", reply))
        raise SessionExists(child, other or None, Cursor.parse(begin).position if begin else 0)
