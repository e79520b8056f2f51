"""Archive a session: write the entries that are not archived yet as segments, extend the chain, and check it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from lanebus.bus.archive.archive import ArchiveBounds, archived_segments, extend_archive, previous_of, require_same_log
from lanebus.bus.archive.segment import LINE_LIMIT_BYTES, Header, SegmentName, Tip, file_of, line_of, sealed
from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    ArchiveDamaged,
    EntriesMissing,
    InvalidArchiveName,
    LogRolledBack,
    MessageTooLarge,
    SessionErased,
)
from lanebus.bus.log.lineage import common_position
from lanebus.bus.log.reading import Pager, fetch_page
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.codec import UNMARKED, Mark, mark_of, position_of
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from lanebus.bus.archive.archive import Archive
    from lanebus.bus.archive.segment import LaneEntry
    from lanebus.bus.log.head import SessionHead


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
