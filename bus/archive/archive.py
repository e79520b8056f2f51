"""`Archive` reads the archived segments of a namespace, and reads trimmed entries as pages."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from lanebus.bus.archive.segment import SUFFIX, Segment, SegmentName, Tip, file_of, folder_of, read_segment
from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    HeadMissing,
    InvalidArchiveName,
    LogRolledBack,
    MessageTooLarge,
    SessionDamaged,
    SessionErased,
    check_bounds,
)
from lanebus.bus.log.lineage import ArchivePage, common_position
from lanebus.bus.log.log import Script
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import UNMARKED, mark_of, position_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.segment import Header, LaneEntry
    from lanebus.bus.archive.store import ArchiveStore
    from lanebus.bus.log.head import SessionHead
    from lanebus.bus.log.log import Log
    from lanebus.bus.wire.codec import Entry, Mark


class Archive:
    """The archived segments of all sessions of a namespace. `archive_session` adds segments to it.

    Implements `ArchiveReader`.

    Args:
        log: the log on the server.
        store: the store that holds the segments.
        namespace: namespace of the bus.
        bounds: how large a segment grows. None means the defaults.
    """

    def __init__(self, log: Log, store: ArchiveStore, namespace: str, bounds: ArchiveBounds | None = None) -> None:
        self.log, self.store, self.namespace = log, store, namespace
        self.bounds = bounds or ArchiveBounds()

    async def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """See `ArchiveReader`. One segment at a time is in memory. A segment is verified before its entries are
        yielded."""
        position, previous, chain_names = after, "", list[SegmentName]()
        while position < until:
            name = await self._holding(head, position + 1, chain_names)
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
        """Read and verify one segment.

        Raises:
            ArchiveDamaged: the segment is missing, or has changed.
            Unavailable: as for `ArchiveStore.get`.
            SetupError: as for `ArchiveStore.get`.
        """
        try:
            data = await self.store.get(file_of(self.namespace, session, name))
        except MessageTooLarge as error:
            raise ArchiveDamaged(session, str(name), f"a file of {error.size_bytes} bytes") from None
        if data is None:
            raise ArchiveDamaged(session, str(name), "missing")
        return await run_in_thread(partial(read_segment, self.namespace, session, name, data))

    async def tip(self, session: str) -> Tip | None:
        """Return the last segment of a session's chain, or None if no entry of the session is archived.

        Raises:
            ArchiveDamaged: the server's record of the last segment is not a segment name.
            Unavailable: the server cannot be reached.
        """
        text = await archive_tip(self.log, session)
        try:
            return Tip.parse(text) if text else None
        except InvalidArchiveName:
            raise ArchiveDamaged(session, text[:100], "no name of a segment") from None

    async def chain(self, session: str, tip: Tip, *, down_to: int = 1) -> AsyncGenerator[Segment, None]:
        """Yield the segments of a session's chain from its end back to a position.

        Args:
            session: id of the session.
            tip: the last segment of the chain.
            down_to: yield segments down to the segment that holds this position.

        Raises:
            ArchiveDamaged: a segment is missing or damaged. Earlier segments cannot be found through the chain then.
            Unavailable: as for `ArchiveStore.get`.
            SetupError: as for `ArchiveStore.get`.
        """
        name, number = tip.name, tip.number
        while True:
            segment = await self.segment(session, name)
            if segment.header.number != number:
                raise ArchiveDamaged(session, str(name), f"it is number {segment.header.number}, not {number}")
            yield segment
            previous = previous_of(segment)
            if previous is None or name.first <= down_to:
                return
            name, number = previous, number - 1

    async def bodies(self, session: str) -> AsyncGenerator[bytes, None]:
        """Yield the value of every field of every archived entry, including entries of segments that are in no chain.

        Raises:
            ArchiveDamaged: a segment has changed, or is missing although the session is not erased.
            Unavailable: as for `ArchiveStore.get`.
            SetupError: as for `ArchiveStore.get`.
        """
        indexed = await archived_segments(self.log, session)
        stored = await self._stored(session)
        missing = [name for name in indexed if name not in stored]
        if missing and not (await self.log.head(session)).is_erased:
            raise ArchiveDamaged(session, missing[0], "missing")
        for text in stored:
            segment = await self.segment(session, _name(session, None, text))
            for _, (_, fields) in segment.entries:
                for value in fields[1::2]:
                    yield value

    async def require_here(self, session: str) -> None:
        """Check that a session's archived entries are in this archive. An erased session always passes.

        Raises:
            ArchiveDamaged: the server lists segments of the session, but none of them is in the store.
            Unavailable: the server or the store cannot be reached.
            SetupError: the store refused access.
        """
        indexed = await archived_segments(self.log, session)
        with suppress(SessionDamaged, HeadMissing):  # such a session can be erased too
            if not indexed or (await self.log.head(session)).is_erased:
                return
        if set(indexed).isdisjoint(await self._stored(session)):
            raise ArchiveDamaged(session, indexed[0], "missing, and so are all others: it may be in another archive")

    async def erase(self, session: str) -> None:
        """Delete everything in a session's folder, including segments that are in no chain.

        Erase the session before this call, or an archiver may add segments during the call. If the call is cancelled,
        some files remain; call this method again to delete them.

        Raises:
            Unavailable: as for `ArchiveStore.clear`.
            SetupError: as for `ArchiveStore.clear`.
        """
        await self.store.clear(folder_of(self.namespace, session))

    async def _stored(self, session: str) -> list[str]:
        """Return the names of the files with a segment's suffix in a session's folder, without the suffix."""
        files = await self.store.names(folder_of(self.namespace, session))
        return [file.rpartition("/")[2].removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)]

    async def _unless_erased(self, session: str, name: SegmentName) -> Segment:
        """Read a segment. Raise SessionErased instead of ArchiveDamaged if the session was erased."""
        try:
            return await self.segment(session, name)
        except ArchiveDamaged:
            if (await self.log.head(session)).is_erased:
                raise SessionErased(session) from None
            raise

    async def _holding(self, head: SessionHead, position: int, chain_names: list[SegmentName]) -> SegmentName | None:
        """Return the segment that holds a position, or the next segment after it; None if neither exists.

        Args:
            head: head of the session.
            position: the position to find.
            chain_names: cache of the segment names in the chain, the last first. Filled if the server lost its index.
        """
        indexed = await archived_segments(self.log, head.session, position, 1)
        if indexed:
            return _name(head.session, None, indexed[0])
        if not chain_names and (tip := await self.tip(head.session)) is not None and tip.name.last >= position:
            chain_names += [segment.name async for segment in self.chain(head.session, tip, down_to=position)]
        while chain_names and chain_names[-1].last < position:
            chain_names.pop()
        return chain_names[-1] if chain_names else None


async def require_same_log(log: Log, head: SessionHead, header: Header) -> None:
    """Check that a segment was written from this log.

    A trimmed log may no longer know the segment's incarnation. The segment is trusted then: the log itself stored the
    segment's name, and the name ends in the file's SHA-256.

    Raises:
        LogRolledBack: the log lost entries that the segment holds, and then grew again.
        Unavailable: the server cannot be reached.
    """
    cursor = Cursor(header.last, 0, header.incarnation)
    found = head.common_position(cursor)
    if found is None and header.last > head.trimmed:
        found = await common_position(log, head, cursor)
    if found is not None and found < header.last:
        raise LogRolledBack(header.session, header.last, found)


def previous_of(segment: Segment) -> SegmentName | None:
    """Return the name of the previous segment in the chain, or None if `segment` is the first.

    Raises:
        ArchiveDamaged: the previous name that `segment` stores is not a segment name, or the two segments overlap.
    """
    header = segment.header
    if not header.previous:
        return None
    previous = _name(header.session, segment.name, header.previous)
    if previous.last >= header.first:
        raise ArchiveDamaged(header.session, str(segment.name), f"it follows {previous}, which overlaps it")
    return previous


def _name(session: str, of: SegmentName | None, text: str) -> SegmentName:
    try:
        return SegmentName.parse(text)
    except InvalidArchiveName:
        reason = "no name of a segment" if of is None else "it names a previous segment that is not one"
        raise ArchiveDamaged(session, str(of or text[:100]), reason) from None


def _pages(
    entries: Sequence[LaneEntry], lanes: Sequence[Lane], after: int, until: int, count: int
) -> Iterator[ArchivePage]:
    """Yield the entries of some lanes in pages. All entries of one position are in the same page."""
    at, end = (bisect_right(entries, position, key=_position) for position in (after, until))
    while at < end:
        bound = _position(entries[min(at + count, end) - 1])
        beyond = bisect_right(entries, bound, lo=at, key=_position)
        by_lane: dict[Lane, list[Entry]] = {lane: [] for lane in lanes}
        for lane, entry in entries[at:beyond]:
            if lane in by_lane:
                by_lane[lane].append(entry)
        mark = next((mark_of(e) for _, e in reversed(entries[at:beyond]) if e[0] == b"%d-0" % bound), UNMARKED)
        yield ArchivePage(Cursor(bound, 0, *mark), tuple(by_lane.items()))
        at = beyond


def _position(entry: LaneEntry) -> int:
    return position_of(entry[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBounds:
    """Sizes at which a segment is full and a new segment begins."""

    text_bytes: int = 8 * 1_048_576
    """Maximum number of bytes of uncompressed lines in a segment. An entry that is larger than this gets a segment of
    its own."""
    entries: int = 10_000
    """Maximum number of entries in a segment."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.archive")


# Read and extend the server's index of a session's archive.
#
# The index holds the names of the session's segments by position. The head holds the end of the chain.

_ARCHIVE = Script("archive", shares=("damage", "proofs"))


async def archive_tip(log: Log, session: str) -> str:
    """Return the end of the session's chain of segments, as `extend_archive` stored it; "" if nothing is archived."""
    tip = await log.call("HGET", log.keys.head(session), "archive")
    return cast("bytes", tip or b"").decode(errors="replace")


async def archived_segments(log: Log, session: str, position: int = 0, count: int = -1) -> list[str]:
    """Return the names of the archived segments that end at a position or later, in order.

    Args:
        log: the log.
        session: id of the session.
        position: the position; 0 returns all segments.
        count: maximum number of names to return; -1 means all.
    """
    reply = await log.call("ZRANGEBYSCORE", log.keys.archive(session), position, "+inf", "LIMIT", 0, count)
    return [name.decode(errors="replace") for name in cast("list[bytes]", reply)]


async def extend_archive(
    log: Log, session: str, tip: str, new_tip: str, *, mark: Mark, segments: Sequence[tuple[int, str]]
) -> str:
    """If a session's chain ends at `tip`, add segments to its index and move the end to `new_tip`.

    Args:
        log: the log.
        session: id of the session.
        tip: the expected end of the chain; "" if nothing is archived.
        new_tip: the new end of the chain. If it equals `tip`, only lost names are added to the index again.
        mark: mark of the entry at the last position of the last segment.
        segments: the last position and the name of each segment.

    Returns:
        "moved" if the chain has the segments now. If nothing was written: "behind" if the chain no longer ends at
        `tip` or the entries were trimmed, "lost" if the log lost the entries, "erased" if the session was erased.
    """
    names = (
        log.keys.head(session),
        log.keys.archive(session),
        *(log.keys.lane(session, lane) for lane in Lane),
    )
    pairs = [word for pair in segments for word in pair]
    reply = await log.run(_ARCHIVE, names, (tip, new_tip, *mark, *pairs))
    return cast("bytes", reply).decode()
