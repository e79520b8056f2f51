"""The archive of a namespace: its segments one by one, and what was trimmed away as pages for a reader."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from lanebus.bus.archive.bounds import ArchiveBounds
from lanebus.bus.archive.index import archive_tip, archived_segments
from lanebus.bus.archive.names import SUFFIX, SegmentName, Tip, file_of, folder_of
from lanebus.bus.archive.segment import Segment, read_segment
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    InvalidArchiveName,
    LogRolledBack,
    MessageTooLarge,
    SessionErased,
)
from lanebus.bus.log.archive_reader import ArchivePage
from lanebus.bus.log.incarnations import common_position
from lanebus.bus.wire.codec import position_of, token_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.segment import Header, LaneEntry
    from lanebus.bus.archive.store import ArchiveStore
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.wire.codec import Entry

__all__ = ("Archive", "previous_of", "require_same_log")


class Archive:
    """Where a bus keeps what was, and finds it again. See `ArchiveReader`; archiver.py adds to it."""

    def __init__(self, log: Log, store: ArchiveStore, namespace: str, bounds: ArchiveBounds | None = None) -> None:
        self.log, self.store, self.namespace = log, store, namespace
        self.bounds = bounds or ArchiveBounds()

    async def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """See `ArchiveReader`. One segment is held at a time, and is verified before anything of it is returned."""
        position, previous, walked = after, "", list[SegmentName]()
        while position < until:
            name = await self._holding(head, position + 1, walked)
            if name is None or name.first > position + 1:
                first_kept = head.trimmed + 1 if name is None else name.first
                raise CursorTrimmed(head.session, str(Cursor(position)), first_kept)
            segment = await self._unless_erased(head.session, name)
            if previous and segment.header.previous != previous:
                raise ArchiveDamaged(head.session, str(name), f"it follows {segment.header.previous}, not {previous}")
            await require_same_log(self.log, head, segment.header)
            for page in _pages(segment.entries, lanes, position, until, self.log.bounds.page_entries):
                position = page.end.position
                yield page
            previous = str(name)

    async def segment(self, session: str, name: SegmentName) -> Segment:
        """A segment by its name, verified.

        Raises:
            ArchiveDamaged: it is not there, or is not what its name tells.
            Unavailable, SetupError: as the store does.
        """
        try:
            data = await self.store.get(file_of(self.namespace, session, name))
        except MessageTooLarge as error:
            raise ArchiveDamaged(session, str(name), f"a file of {error.size_bytes} bytes") from None
        if data is None:
            raise ArchiveDamaged(session, str(name), "missing")
        return await run_sync(partial(read_segment, self.namespace, session, name, data))

    async def tip(self, session: str) -> Tip | None:
        """The end of a session's chain; None if nothing of it was archived.

        Raises:
            ArchiveDamaged: what the server keeps is no name of a segment.
            Unavailable: the server cannot be reached.
        """
        text = await archive_tip(self.log, session)
        try:
            return Tip.parse(text) if text else None
        except InvalidArchiveName:
            raise ArchiveDamaged(session, text[:100], "no name of a segment") from None

    async def chain(self, session: str, tip: Tip, *, down_to: int = 1) -> AsyncGenerator[Segment, None]:
        """The segments from the end of the chain back to the one with a position: by what they say of each other.

        Raises:
            ArchiveDamaged: one is missing or damaged; those before it are not found this way.
            Unavailable, SetupError: as the store does.
        """
        name, number = tip.name, tip.number
        while True:
            segment = await self.segment(session, name)
            if segment.header.number != number:
                raise ArchiveDamaged(session, str(name), f"it is number {segment.header.number}, not {number}")
            yield segment
            before = previous_of(segment)
            if before is None or name.first <= down_to:
                return
            name, number = before, number - 1

    async def bodies(self, session: str) -> AsyncGenerator[bytes, None]:
        """The value of every field of every archived entry of a session, also of segments that are in no chain.

        Raises:
            ArchiveDamaged: a segment is not what its name tells; or is not here, and the session is not erased.
            Unavailable, SetupError: as the store does.
        """
        noted = await archived_segments(self.log, session)
        there = await self._stored(session)
        missing = [name for name in noted if name not in there]
        if missing and not (await self.log.head(session)).is_erased:
            raise ArchiveDamaged(session, missing[0], "missing")
        for text in there:
            segment = await self.segment(session, _name(session, None, text))
            for _, (_, fields) in segment.entries:
                for value in fields[1::2]:
                    yield value

    async def require_here(self, session: str) -> None:
        """Look whether this is the archive that a session is in.

        Raises:
            ArchiveDamaged: some of it is archived, and none of that is here. Of an erased one it may be gone already.
            Unavailable, SetupError: the server or the store cannot be reached.
        """
        noted = await archived_segments(self.log, session)
        if not noted or (await self.log.head(session)).is_erased:
            return
        if set(noted).isdisjoint(await self._stored(session)):
            raise ArchiveDamaged(session, noted[0], "missing, and so are all others: it may be in another archive")

    async def erase(self, session: str) -> None:
        """Delete all segments of a session, also those that are in no chain, and all else that is in its folder.

        Broken off in the middle it leaves some, and a repeat deletes them. The session has to be erased before, or an
        archiver could write others meanwhile.

        Raises:
            Unavailable, SetupError: as the store does.
        """
        await self.store.clear(folder_of(self.namespace, session))

    async def _stored(self, session: str) -> list[str]:
        """What is in the folder of a session and is called as a segment is, without its suffix."""
        files = await self.store.names(folder_of(self.namespace, session))
        return [file.rpartition("/")[2].removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)]

    async def _unless_erased(self, session: str, name: SegmentName) -> Segment:
        """The segment, where what is missing of an erased session is not damage."""
        try:
            return await self.segment(session, name)
        except ArchiveDamaged:
            if (await self.log.head(session)).is_erased:
                raise SessionErased(session) from None
            raise

    async def _holding(self, head: SessionHead, position: int, walked: list[SegmentName]) -> SegmentName | None:
        """The segment that holds a position, or the first behind it; None if there is none.

        Args:
            walked: names that were found from the chain's end, the last one first, as the server has lost them.
        """
        found = await archived_segments(self.log, head.session, position, 1)
        if found:
            return _name(head.session, None, found[0])
        if not walked and (tip := await self.tip(head.session)) is not None and tip.name.last >= position:
            walked += [segment.name async for segment in self.chain(head.session, tip, down_to=position)]
        while walked and walked[-1].last < position:
            walked.pop()
        return walked[-1] if walked else None


async def require_same_log(log: Log, head: SessionHead, header: Header) -> None:
    """Look whether a log is the one that a segment was written from.

    Where the log was trimmed beyond the segment and does not list the incarnation any more, the segment is believed:
    the log itself noted its name, which ends in the SHA-256 of its file.

    Raises:
        LogRolledBack: it lost its end below the segment's and grew again.
        Unavailable: the server cannot be reached.
    """
    cursor = Cursor(header.last, 0, header.incarnation)
    found = head.common_position(cursor)
    if found is None and header.last > head.trimmed:
        found = await common_position(log, head, cursor)
    if found is not None and found < header.last:
        raise LogRolledBack(header.session, header.last, found)


def previous_of(segment: Segment) -> SegmentName | None:
    """The segment that one follows; None for the first.

    Raises:
        ArchiveDamaged: what it names is no segment, or none before it.
    """
    header = segment.header
    if not header.previous:
        return None
    before = _name(header.session, segment.name, header.previous)
    if before.last >= header.first:
        raise ArchiveDamaged(header.session, str(segment.name), f"it follows {before}, which goes beyond its beginning")
    return before


def _name(session: str, of: SegmentName | None, text: str) -> SegmentName:
    try:
        return SegmentName.parse(text)
    except InvalidArchiveName:
        place = "no name of a segment" if of is None else "what it follows is no segment"
        raise ArchiveDamaged(session, str(of or text[:100]), place) from None


def _pages(
    entries: Sequence[LaneEntry], lanes: Sequence[Lane], after: int, until: int, count: int
) -> Iterator[ArchivePage]:
    """The entries of some lanes in pages; one position is never in two of them."""
    at, end = (bisect_right(entries, position, key=_position) for position in (after, until))
    while at < end:
        bound = _position(entries[min(at + count, end) - 1])
        beyond = bisect_right(entries, bound, lo=at, key=_position)
        found: dict[Lane, list[Entry]] = {lane: [] for lane in lanes}
        for lane, entry in entries[at:beyond]:
            if lane in found:
                found[lane].append(entry)
        token = next((token_of(e) for _, e in reversed(entries[at:beyond]) if e[0] == b"%d-0" % bound), "")
        yield ArchivePage(Cursor(bound, 0, token), tuple(found.items()))
        at = beyond


def _position(entry: LaneEntry) -> int:
    return position_of(entry[1])
