"""Archive a session, and read what is archived: trimmed entries as pages."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.archive.segment import (
    LINE_LIMIT_BYTES,
    SUFFIX,
    Header,
    Segment,
    SegmentName,
    Tip,
    file_of,
    folder_of,
    line_of,
    read_segment,
    sealed,
)
from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    ArchiveDamaged,
    CursorTrimmed,
    EntriesMissing,
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
from lanebus.bus.log.reading import Pager, fetch_page
from lanebus.bus.messages.base import Lane
from lanebus.bus.wire.codec import UNMARKED, Cursor, Mark, mark_of, position_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.segment import ArchiveStore, LaneEntry
    from lanebus.bus.log.log import Log, SessionHead
    from lanebus.bus.wire.codec import Entry


_LANES = tuple(Lane)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The result of `Session.archive`."""

    session: str
    position: int
    """the last archived position; 0 if nothing is archived"""
    segments: tuple[str, ...] = ()
    """names of the segments that this call added to the chain, `<first>-<last>-<sha256>`"""
    entries: int = 0
    """number of entries in these segments"""
    size_bytes: int = 0
    """bytes of these segments' compressed files"""
    orphans: tuple[str, ...] = ()
    """names of segments that this call wrote but that are in no chain, because another archiver was faster. They are
    harmless"""


@dataclass(slots=True)
class _Draft:
    """A segment that is being filled with entries."""

    bounds: ArchiveBounds
    lines: list[bytes] = field(default_factory=list[bytes])
    size_bytes: int = 0
    last: int = 0
    mark: Mark = UNMARKED

    def take(self, entries: list[LaneEntry], position: int) -> bool:
        """Add all entries of one position. If the segment is full, add nothing and return False."""
        lines = [line_of(*entry) for entry in entries]
        if (size := sum(map(len, lines))) > LINE_LIMIT_BYTES:
            raise MessageTooLarge(size, LINE_LIMIT_BYTES)
        bounds = self.bounds
        is_full = len(self.lines) + len(lines) > bounds.entries or self.size_bytes + size > bounds.text_bytes
        if self.lines and is_full:
            return False
        self.lines += lines
        self.size_bytes += size
        self.last = position
        self.mark = next((mark_of(entry) for _, entry in entries if entry[0] == b"%d-0" % position), UNMARKED)
        return True


class _Written(NamedTuple):
    name: SegmentName
    header: Header
    mark: Mark
    """mark of the segment's last entry"""
    entries: int
    size_bytes: int


async def archive_session(archive: Archive, session: str, before: int | None = None) -> Archived:
    """Archive a session's entries. See `Session.archive`, which calls this.

    Each segment is read back from the store before the session's head refers to it. If the call is cancelled, whole
    segments are archived, and at most one segment is in no chain. Several processes may archive a session at the same
    time.

    Args:
        archive: the archive to add to.
        session: id of the session.
        before: first position not to archive. None archives all entries that the log holds when the call starts.

    Raises:
        SessionErased: the session was erased. The segment written last is deleted again.
        LogRolledBack: the log lost entries that are already archived.
        ArchiveDamaged: the last segment has changed, or the store does not return what was written.
        EntriesMissing: a foreign client deleted an entry of the log.
        MessageTooLarge: an entry of a foreign client is larger than a segment may be.
        Unavailable: the server or the store cannot be reached.
        SetupError: the store refused access.
    """
    done: Archived = Archived(session=session, position=0)
    target = before - 1 if before is not None else None
    while True:
        head = await archive.log.head(session)
        if head.is_erased:
            raise SessionErased(session)
        if head.archived > head.position:
            raise LogRolledBack(session, head.archived, head.position)
        target = head.position if target is None else min(target, head.position)
        tip = await archive.tip(session)
        done = replace(done, position=max(tip.name.last if tip else 0, done.position))
        if max(done.position, _begin(head)) >= target:
            return done
        if tip is not None and not done.segments:
            await require_same_log(archive.log, head, (await archive.segment(session, tip.name)).header)
            await _restore_index(archive, tip, session)
        written = await _write(archive, head, tip, target)
        if written is None:
            continue  # entries were trimmed while they were read: start again after the trimmed entries
        if await _append_segment(archive, tip, written):
            done = replace(
                done,
                position=written.name.last,
                segments=(*done.segments, str(written.name)),
                entries=done.entries + written.entries,
                size_bytes=done.size_bytes + written.size_bytes,
            )
        else:
            done = replace(done, orphans=(*done.orphans, str(written.name)))


async def _write(archive: Archive, head: SessionHead, tip: Tip | None, target: int) -> _Written | None:
    """Write the next segment. Return None if its entries were trimmed while they were read."""
    after = max(tip.name.last if tip else 0, _begin(head))
    draft = _Draft(archive.bounds)
    try:
        async for position, entries in _positions(archive, head, after, target):
            if not draft.take(entries, position):
                break
    except _TrimmedMeanwhile:
        return None
    header = Header(
        archive.namespace,
        head.session,
        tip.number + 1 if tip else 1,
        after + 1,
        draft.last,
        draft.mark.token,
        str(tip.name) if tip else "",
    )
    name, data = await run_in_thread(partial(sealed, header, draft.lines))
    file = file_of(archive.namespace, head.session, name)
    await archive.store.put_if_absent(file, data)
    # The log may be trimmed afterwards up to `target`, so the file is read back instead of trusting the store's answer.
    if await archive.store.get(file) != data:
        raise ArchiveDamaged(head.session, str(name), "the store returns other bytes than were written")
    return _Written(name, header, draft.mark, len(draft.lines), len(data))


def _begin(head: SessionHead) -> int:
    """Return the position after which entries can be archived. Shared entries of a fork belong to the parent."""
    return max(head.trimmed, head.own_start.position)


class _TrimmedMeanwhile(Exception):
    """The next entries were trimmed between two pages."""


async def _positions(
    archive: Archive, head: SessionHead, after: int, target: int
) -> AsyncGenerator[tuple[int, list[LaneEntry]], None]:
    """Yield each position after `after` with its entries in both lanes, up to `target`.

    A position has one entry, and more only if a foreign client has written there.
    """
    session, position, proof, log = head.session, after, head.cursor, archive.log
    pager = Pager(log.bounds.page_bytes, log.bounds.page_entries, len(_LANES))
    while position < target:
        fetched = await fetch_page(log, session, _LANES, position, target, pager=pager)
        now, pages = fetched.head, fetched.pages
        if now.trimmed > position:
            raise _TrimmedMeanwhile
        if (common := min(now.position, await common_position(log, now, proof))) < target:
            raise LogRolledBack(session, target, common)
        proof = now.cursor
        bound = fetched.complete(target)
        entries_at: dict[int, list[LaneEntry]] = {}
        own: set[int] = set()  # positions with an entry of the bus: a foreign 3-5 does not replace a deleted 3-0
        for lane, page in zip(_LANES, pages, strict=True):
            for entry in page:
                entries_at.setdefault(position_of(entry), []).append((lane, entry))
                if entry[0].endswith(b"-0"):
                    own.add(position_of(entry))
        for each in range(position + 1, bound + 1):
            if each not in own:
                first_kept = min((p for p in own if p > each), default=bound + 1)
                raise EntriesMissing(session, str(Cursor(each - 1)), first_kept)
            yield each, entries_at[each]
        position = bound


async def _restore_index(archive: Archive, tip: Tip, session: str) -> None:
    """If the server's index of a session's segments lost some segments, restore it from the chain."""
    if len(await archived_segments(archive.log, session)) >= tip.number:
        return
    names: list[SegmentName] = []
    async for segment in archive.chain(session, tip):
        names.insert(0, segment.name)
    pairs = [(name.last, str(name)) for name in names]
    await extend_archive(archive.log, session, str(tip), str(tip), mark=UNMARKED, segments=pairs)


async def _append_segment(archive: Archive, tip: Tip | None, written: _Written) -> bool:
    """Add a segment to the chain. Return False if another archiver has added a different segment there."""
    session, name, header = written.header.session, written.name, written.header
    new_tip = Tip(header.number, name)
    segments = [(name.last, str(name))]
    word = await extend_archive(
        archive.log, session, str(tip or ""), str(new_tip), mark=written.mark, segments=segments
    )
    match word:
        case "moved":
            return True
        case "behind":
            return False
        case "erased":
            await archive.erase(session)
            raise SessionErased(session)
        case _:
            raise LogRolledBack(session, name.last, header.first - 1)


# Check a session's archive: every segment of the chain from the last to the first, and the server's index.


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


# `Archive` reads the archived segments of a namespace, and reads trimmed entries as pages.


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
        self._reads = anyio.Semaphore(self.bounds.reads)
        self._kept: Segment | None = None
        self._dropping: asyncio.TimerHandle | None = None

    async def pages(
        self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int
    ) -> AsyncGenerator[ArchivePage, None]:
        """See `ArchiveReader`. One segment at a time is in memory, and the last one for a moment after its last use. A
        segment is verified before its entries are yielded."""
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
        async with self._reads:
            return await self._read(session, name)

    async def _read(self, session: str, name: SegmentName) -> Segment:
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
        if self._kept is not None and self._kept.header.session == session:
            self._drop()

    async def _stored(self, session: str) -> list[str]:
        """Return the names of the files with a segment's suffix in a session's folder, without the suffix."""
        files = await self.store.names(folder_of(self.namespace, session))
        return [file.rpartition("/")[2].removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX)]

    async def _unless_erased(self, session: str, name: SegmentName) -> Segment:
        """Read a segment. Raise SessionErased instead of ArchiveDamaged if the session was erased."""
        async with self._reads:
            segment = self._kept
            if segment is None or (segment.header.session, segment.name) != (session, name):
                try:
                    segment = await self._read(session, name)
                except ArchiveDamaged:
                    if (await self.log.head(session)).is_erased:
                        raise SessionErased(session) from None
                    raise
            self._keep(segment)
            return segment

    def _keep(self, segment: Segment) -> None:
        """Keep a segment for the next read, which often begins in it: pages are small, and a segment is read whole."""
        if segment is not self._kept and self.bounds.text_bytes < sum(
            len(value) for _, (_, fields) in segment.entries for value in fields
        ):
            self._drop()
            return
        self._drop()
        self._kept = segment
        self._dropping = asyncio.get_running_loop().call_later(self.bounds.kept_seconds, self._drop)

    def _drop(self) -> None:
        self._kept = None
        if self._dropping is not None:
            self._dropping.cancel()
            self._dropping = None

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
    """How large segments grow, how many are read at once, and how long one is kept."""

    text_bytes: int = 8 * 1_048_576
    """Maximum number of bytes of uncompressed lines in a segment. An entry that is larger than this gets a segment of
    its own."""
    entries: int = 10_000
    """Maximum number of entries in a segment."""
    reads: int = 2
    """Number of segments that a bus reads and verifies at the same time. Each takes its text and entries in memory, and
    a processor."""
    kept_seconds: float = 1.0
    """A bus keeps the segment that it read last for this time after its last use."""

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
