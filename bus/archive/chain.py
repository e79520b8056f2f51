"""Check a session's archive: every segment of the chain from the last to the first, and the server's index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.archive.archive import previous_of, require_same_log
from lanebus.bus.archive.index import archived_segments
from lanebus.bus.archive.names import SegmentName
from lanebus.bus.errors import ArchiveDamaged, InvalidArchiveName, LogRolledBack, require_methods

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.archive.names import Tip
    from lanebus.bus.log.head import SessionHead

__all__ = ("ArchiveProblem", "check_chain")


class ArchiveProblem(NamedTuple):
    """A problem with a session's archive.

    Kinds:
        missing: a segment is not in the store.
        damaged: a segment has changed, or the next segment names another previous segment.
        hole: positions between two segments are in no segment, because they were trimmed before they were archived.
        log: the server's log lost entries that a segment holds.
        names: the session's head or the index of segments on the server does not match the chain.
    """

    session: str
    segment: str
    """name of the segment, `<first>-<last>-<sha256>`; "" if the problem is not in one segment"""
    kind: str
    text: str
    """what is wrong, in words for people"""


async def check_chain(archive: Archive, session: str) -> AsyncGenerator[ArchiveProblem, None]:
    """Read all segments of a session, the last first, and yield each problem. Changes nothing.

    One segment at a time is in memory. Segments that are archived during the check are not checked.

    Args:
        archive: the archive of the session's bus.
        session: id of the session.

    Raises:
        Unavailable: the server or the store cannot be reached.
        SetupError: the store refused access.
    """
    require_methods("archive", archive, ("tip",), "pass an Archive; `Session.archive` needs none")
    # The tip is read before the index. So a segment that is archived in between is in the index but not in the chain,
    # which is no problem.
    try:
        tip = await archive.tip(session)
    except ArchiveDamaged as error:
        yield ArchiveProblem(session, error.segment, "names", error.reason)
        return
    head = await archive.log.head(session)
    indexed = await archived_segments(archive.log, session)
    chain: list[str] = []
    if tip is not None:
        async for item in _walk(archive, head, tip, indexed):
            if isinstance(item, ArchiveProblem):
                yield item
            else:
                chain.insert(0, str(item))
    if head.archived < (end := tip.name.last if tip else 0) or (tip is None and head.archived):
        text = f"the head says that the archive ends at position {head.archived}, its chain ends at {end}"
        yield ArchiveProblem(session, "", "names", text)
    for problem in _compare_index(session, chain, indexed):
        yield problem


async def _walk(
    archive: Archive, head: SessionHead, tip: Tip, indexed: Sequence[str]
) -> AsyncGenerator[SegmentName | ArchiveProblem, None]:
    """Yield the segments of the chain, the last first. The problems of a segment follow its name."""
    session, number, name = head.session, tip.number, tip.name
    while True:
        yield name
        try:
            segment = await archive.segment(session, name)
            if segment.header.number != number:
                text = f"it is number {segment.header.number}, not {number}"
                yield ArchiveProblem(session, str(name), "damaged", text)
            previous = previous_of(segment)
        except ArchiveDamaged as error:
            kind = "missing" if error.reason == "missing" else "damaged"
            yield ArchiveProblem(session, str(name), kind, error.reason)
            previous = _last_below(name.first, indexed)  # a damaged segment names no previous one: use the index
        else:
            try:
                await require_same_log(archive.log, head, segment.header)
            except LogRolledBack as error:
                yield ArchiveProblem(session, str(name), "log", str(error))
        if previous is None:
            return
        if previous.last + 1 < name.first:
            text = f"positions {previous.last + 1} to {name.first - 1} are in no segment"
            yield ArchiveProblem(session, str(name), "hole", text)
        name, number = previous, number - 1


def _last_below(position: int, indexed: Sequence[str]) -> SegmentName | None:
    for text in reversed(indexed):
        try:
            name = SegmentName.parse(text)
        except InvalidArchiveName:
            continue
        if name.last < position:
            return name
    return None


def _compare_index(session: str, chain: Sequence[str], indexed: Sequence[str]) -> Iterator[ArchiveProblem]:
    """Yield a problem for each difference between the server's index and the chain. Both start at the first segment."""
    for name in chain:
        if name not in indexed:
            yield ArchiveProblem(session, name, "names", "the server's index does not list it")
    end = indexed.index(chain[-1]) if chain and chain[-1] in indexed else len(indexed)
    for name in indexed[:end]:  # later segments were archived during this check
        if name not in chain:
            yield ArchiveProblem(session, name, "names", "the server's index lists it, and it is not in the chain")
