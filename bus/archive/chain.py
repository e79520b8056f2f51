"""Prove a session's archive: every segment from the end of its chain back to the first, and what the server notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.archive.archive import previous_of, require_same_log
from lanebus.bus.archive.index import archived_segments
from lanebus.bus.archive.names import SegmentName
from lanebus.bus.errors import ArchiveDamaged, InvalidArchiveName, LogRolledBack

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.archive.names import Tip
    from lanebus.bus.log.head import SessionHead

__all__ = ("ArchiveProblem", "check_chain")


class ArchiveProblem(NamedTuple):
    """Something that is wrong with a session's archive.

    Its kinds: `missing`, a segment is not in the store. `damaged`, it is not what it was, or not the one that the next
    one follows. `hole`, positions between two segments are in none: they were trimmed away before they were archived.
    `log`, it is of another log than the server's. `names`, what the server notes of the chain is not the chain.
    """

    session: str
    segment: str
    """its name, `<first>-<last>-<sha256>`; "" where it is not one segment's"""
    kind: str
    text: str


async def check_chain(archive: Archive, session: str) -> AsyncGenerator[ArchiveProblem, None]:
    """Read all segments of a session, the last first, and tell what is wrong. One is held at a time, none is changed.

    Raises:
        Unavailable, SetupError: the server or the store cannot be reached.
    """
    # The end first: what is archived meanwhile is then noted by the server, and not yet asked for here.
    try:
        tip = await archive.tip(session)
    except ArchiveDamaged as error:
        yield ArchiveProblem(session, error.segment, "names", error.reason)
        return
    head = await archive.log.head(session)
    noted = await archived_segments(archive.log, session)
    chain: list[str] = []
    if tip is not None:
        async for found in _walk(archive, head, tip, noted):
            if isinstance(found, ArchiveProblem):
                yield found
            else:
                chain.insert(0, str(found))
    if head.archived < (end := tip.name.last if tip else 0) or (tip is None and head.archived):
        text = f"the head says that the archive goes up to {head.archived}, its chain goes up to {end}"
        yield ArchiveProblem(session, "", "names", text)
    for problem in _noted(session, chain, noted):
        yield problem


async def _walk(
    archive: Archive, head: SessionHead, tip: Tip, noted: Sequence[str]
) -> AsyncGenerator[SegmentName | ArchiveProblem, None]:
    """Each segment of the chain, the last first, and what is wrong with it."""
    session, number, name = head.session, tip.number, tip.name
    while True:
        yield name
        try:
            segment = await archive.segment(session, name)
            if segment.header.number != number:
                text = f"it is number {segment.header.number}, not {number}"
                yield ArchiveProblem(session, str(name), "damaged", text)
            before = previous_of(segment)
        except ArchiveDamaged as error:
            kind = "missing" if error.reason == "missing" else "damaged"
            yield ArchiveProblem(session, str(name), kind, error.reason)
            before = _last_below(name.first, noted)  # it does not say any more, so this is the server's word
        else:
            try:
                await require_same_log(archive.log, head, segment.header)
            except LogRolledBack as error:
                yield ArchiveProblem(session, str(name), "log", str(error))
        if before is None:
            return
        if before.last + 1 < name.first:
            text = f"positions {before.last + 1} to {name.first - 1} are in no segment"
            yield ArchiveProblem(session, str(name), "hole", text)
        name, number = before, number - 1


def _last_below(position: int, noted: Sequence[str]) -> SegmentName | None:
    for text in reversed(noted):
        try:
            name = SegmentName.parse(text)
        except InvalidArchiveName:
            continue
        if name.last < position:
            return name
    return None


def _noted(session: str, chain: Sequence[str], noted: Sequence[str]) -> Iterator[ArchiveProblem]:
    """What the server notes, against the chain; both begin with the first."""
    for name in chain:
        if name not in noted:
            yield ArchiveProblem(session, name, "names", "the server does not know it by its position")
    end = noted.index(chain[-1]) if chain and chain[-1] in noted else len(noted)
    for name in noted[:end]:  # those behind were archived while this was looking
        if name not in chain:
            yield ArchiveProblem(session, name, "names", "the server notes it, and it is not in the chain")
