"""Create forks: sessions that share the first entries of another session without copying them.

A fork's head stores the parent's id and the cursor of the last shared entry. The fork's own streams hold the entries
after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import (
    CursorTrimmed,
    HeadMissing,
    InvalidCursor,
    NoSuchPosition,
    SessionDamaged,
    SessionErased,
    SessionExists,
)
from lanebus.bus.log.head import Incarnation, read_incarnations, start_of
from lanebus.bus.log.lineage import mark_at
from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Mark

__all__ = ("begin_fork", "unpin")

_PIN = Script("pin", shares=("damage", "proofs"))
_FORK = Script("fork", shares=("damage", "agents"))


class _Shared(NamedTuple):
    """The entries that a fork shares with its parent, as they were when they were pinned."""

    cursor: Cursor
    """cursor of the last shared entry"""
    incarnations: tuple[Incarnation, ...]
    """those incarnations in the parent's head that wrote shared entries"""
    trimmed: int
    """the highest shared position that cannot be read; 0 if all shared entries can be read"""
    agent: str
    """the agent of the parent; "" if it has none"""

    def ending_with(self, mark: Mark) -> _Shared:
        """Return a copy for which `mark` is the mark of the last shared entry."""
        cursor, listed = Cursor(self.cursor.position, 0, *mark), self.incarnations
        if not self.cursor.incarnation and mark.token:
            listed = (Incarnation(mark.token, start_of(mark.token)),)
        return self._replace(cursor=cursor, incarnations=listed)


async def begin_fork(
    log: Log, parent: str, child: str, at: int | None, archive: ArchiveReader | None = None, *, agent: str | None = None
) -> None:
    """Start a session as a fork of another session. Another call with the same arguments changes nothing.

    Parent and child may be on different servers of a cluster. So the call first pins the shared entries at the parent,
    which protects them from trims, and then creates the child. If it is cancelled in between, the pin stays; another
    call uses the pin.

    Args:
        log: the log of both sessions.
        parent: the session to fork.
        child: the id of the fork.
        at: the last position to share; None shares all entries.
        archive: the archive from which a trimmed entry at `at` is read. None means no archive.
        agent: the agent of the fork; None means the parent's agent.

    Raises:
        SessionExists: a session with the child's id exists and is not this fork.
        SessionErased: the parent was erased, or an earlier session with the child's id was erased.
        NoSuchPosition: the parent does not have the position.
        CursorTrimmed: the entries up to the position were trimmed.
        HeadMissing: the parent has no head, but entries.
        Unavailable: the server cannot be reached; the fork may have been created.
    """
    shared = await _pin(log, parent, child, at)
    try:
        if not shared.cursor.position:
            await log.head(parent)
        if shared.cursor.position and not (shared.cursor.incarnation and shared.cursor.proof):
            head = await log.head(parent)
            mark = await mark_at(log, head, shared.cursor.position, archive, with_proof=True)
            if mark is not None:
                shared = shared.ending_with(mark)
        await _begin(log, parent, child, shared, shared.agent if agent is None else agent)
    except SessionExists as taken:
        if taken.parent != parent:  # with the same parent, the pin is that of the existing fork and must stay
            await unpin(log, parent, child)
        raise
    except (SessionErased, HeadMissing):
        await unpin(log, parent, child)
        raise


async def _pin(log: Log, parent: str, child: str, at: int | None) -> _Shared:
    """Pin the entries up to `at` that a fork shares, so that no trim removes them. If `at` is None, pin all entries.

    Raises:
        NoSuchPosition: the parent has no entry at `at`; nothing was pinned.
        CursorTrimmed: the entry at `at` was trimmed; nothing was pinned.
        SessionErased: the parent was erased; nothing was pinned.
    """
    names = (log.keys.head(parent), log.keys.checkpoints(parent), *(log.keys.lane(parent, lane) for lane in Lane))
    reply = await log.run(_PIN, names, (f"f:{child}", "" if at is None else at))
    if isinstance(reply, bytes):
        word, _, number = reply.decode().partition(" ")
        if word == "erased":
            raise SessionErased(parent)
        if word == "trimmed":
            raise CursorTrimmed(parent, str(Cursor(at or 0)), int(number) + 1)
        if number == "0":
            await log.head(parent)  # raises HeadMissing
        raise NoSuchPosition(parent, at or 0, int(number))
    position, incarnations, trimmed, agent, proof = cast("tuple[int, bytes, int, bytes, bytes]", reply)
    try:
        listed = read_incarnations(incarnations)
    except ValueError:
        raise SessionDamaged(parent, "head, incarnations") from None
    shared = tuple(each for each in listed if each.start < position)
    cursor = Cursor(position, 0, shared[-1].token if shared else "", proof.decode())
    return _Shared(cursor, shared, trimmed, agent.decode(errors="replace"))


async def unpin(log: Log, parent: str, child: str) -> None:
    """Remove the pin that protects a fork's shared entries from trims of the parent."""
    await log.call("HDEL", log.keys.checkpoints(parent), f"f:{child}")


async def _begin(log: Log, parent: str, child: str, shared: _Shared, agent: str) -> None:
    """Create the child for an agent. The shared entries must be pinned already.

    Raises:
        SessionExists: the id is in use; nothing was written.
        SessionErased: a session with this id was erased; nothing was written.
    """
    keys, cursor = log.keys, shared.cursor
    bucket = keys.bucket(child)
    names = (keys.head(child), keys.checkpoints(child), keys.sessions(bucket), keys.index(bucket))
    incarnations = " ".join(each.token for each in shared.incarnations)
    arguments = (
        child,
        parent,
        str(cursor),
        cursor.position,
        incarnations,
        shared.trimmed,
        agent,
        *log.work.notice_trim,
        f"{cursor.position}.{cursor.proof}" if cursor.proof else "",
    )
    reply = await log.run(_FORK, names, arguments)
    if reply == b"erased":
        raise SessionErased(child)
    if reply != b"forked":
        _, other, begin = (word.decode(errors="replace") for word in cast("list[bytes]", reply))
        try:
            at = Cursor.parse(begin).position if begin else 0
        except InvalidCursor:
            raise SessionDamaged(child, "head, fork") from None
        raise SessionExists(child, other or None, at)
