"""Find the sessions that hold the entries that a fork shares.

A fork's head stores the parent's id and the cursor of the last shared entry. The parent may be a fork as well.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, cast

from lanebus.bus.errors import ArchiveDamaged, CursorTrimmed, ParentErased
from lanebus.bus.log.script import Script
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.codec import Mark, mark_in
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanebus.bus.errors import Refused
    from lanebus.bus.log.archive_reader import ArchiveReader
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.replies import Reply

__all__ = ("WRITTEN_BY", "FoundMark", "Part", "lineage", "mark_at", "read_written", "written_command", "written_here")

WRITTEN_BY = Script("written_by")


class Part(NamedTuple):
    """A range of a fork's shared entries that one session holds."""

    head: SessionHead
    """head of the fork that the reader reads"""
    holder: str
    """id of the session that holds the entries in its streams"""
    end: int
    """the last position to read of this range"""
    last: int
    """the last position of this range. Another session holds later entries"""
    proof: Cursor
    """cursor of the last entry that the fork shares with the holder. It shows whether the holder still has the range"""

    def require(self, holder: SessionHead, after: int) -> None:
        """Check that the holder was not erased.

        Args:
            holder: the present head of the holder.
            after: the last position that the reader has read, for the error.

        Raises:
            ParentErased: the holder was erased.
        """
        if holder.is_erased:
            raise ParentErased(self.head.session, str(Cursor(after)), self.last + 1, self.holder)


async def lineage(log: Log, head: SessionHead, after: int, until: int) -> list[Part]:
    """Return the parts that hold a fork's shared entries after `after` and up to `until`, in order of position.

    Raises:
        ParentErased: a session that holds some of these entries was erased.
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


async def mark_at(
    log: Log, head: SessionHead, position: int, archive: ArchiveReader | None = None, *, with_proof: bool = False
) -> Mark | None:
    """Return the mark of the entry at a position; None if the entry no longer exists.

    Args:
        log: the log to read.
        head: the session's head.
        position: the entry's position.
        archive: the archive, for trimmed entries; None means no archive.
        with_proof: whether the entry is read if the head knows the incarnation but not the proof.

    Raises:
        Unavailable: the server or the archive cannot be reached.
    """
    token, proof = head.incarnation_of(position), head.proof_of(position)
    if token is not None and (proof or not with_proof):
        return Mark(token, proof)
    if head.origin is not None and position <= head.origin.position:
        try:
            (part,) = await lineage(log, head, position - 1, position)
        except ParentErased:
            return None
        return await mark_at(log, await log.head(part.holder), position, archive, with_proof=with_proof)
    if position > head.trimmed:
        return (await written_here(log, head.session, position)).mark
    if archive is None:
        return None
    try:
        async with aclosing(archive.pages(head, tuple(Lane), position - 1, position)) as pages:
            async for page in pages:
                return Mark(page.end.incarnation, page.end.proof) if page.end.incarnation else None
    except (CursorTrimmed, ArchiveDamaged):
        return None
    return None


class FoundMark(NamedTuple):
    """Who wrote the entries of a session's own streams."""

    mark: Mark | None
    """mark of the entry at the position that was asked for; None if neither stream has it"""
    present: str
    """token of the session's incarnation if the present server process wrote its last entry; "" otherwise"""


def written_command(log: Log, session: str, position: int) -> tuple[Sequence[str], Sequence[int]]:
    """Return the keys and the arguments with which `WRITTEN_BY` reads the header at a position."""
    return [*(log.keys.lane(session, lane) for lane in Lane), log.keys.head(session)], (position,)


def read_written(reply: Reply | Refused) -> FoundMark:
    """Return what the reply of `WRITTEN_BY` says. If the command was refused, raise the error."""
    header, present = cast("tuple[bytes, bytes]", answered(reply))
    return FoundMark(mark_in(header) if header else None, present.decode(errors="replace"))


async def written_here(log: Log, session: str, position: int) -> FoundMark:
    """Return who wrote the entry at a position of the session's own streams."""
    return read_written(await log.run(WRITTEN_BY, *written_command(log, session, position)))


def _position(cursor: Cursor) -> int:
    return cursor.position
