"""Read a session's log as pages of envelopes, including a fork's shared entries and the archive.

The entries of both lanes are merged by position. Reading stops with an error at the first gap. Requests are sized so
that replies stay below the server's output limit. `read_pages` is for readers; `fetch_page` and `stream_pages` read
raw entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.errors import (
    AnswerLost,
    CursorTrimmed,
    EntriesMissing,
    HeadMissing,
    LogRolledBack,
    Refused,
    ReplyTooLarge,
    SessionErased,
)
from lanebus.bus.log.lineage import (
    WRITTEN_BY,
    ArchiveReader,
    Part,
    common_position,
    cursor_at,
    lineage,
    read_written,
    written_command,
    written_here,
)
from lanebus.bus.log.log import FirstPage, Log, Script, SessionHead, head_command, read_head
from lanebus.bus.messages.base import Lane
from lanebus.bus.servers.calls import answered
from lanebus.bus.wire.codec import (
    MESSAGE_LIMIT_BYTES,
    Cursor,
    Entry,
    Envelope,
    Selection,
    decode,
    position_of,
    token_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.lineage import FoundMark
    from lanebus.bus.servers.calls import Argument, Reply


class Page(NamedTuple):
    """The selected envelopes of a range of the log."""

    envelopes: list[Envelope]
    cursor: Cursor
    """cursor of the end of the range, which may be after the last selected envelope"""
    size_bytes: int
    """bytes of the stored entries that were read for the page, also of those that were not selected"""
    head: SessionHead | None = None
    """head of the session, read together with the page; None if the page is from the archive or a fork's parent"""


async def read_pages(
    log: Log,
    session: str,
    selection: Selection,
    after: Cursor,
    until: int | None,
    *,
    archive: ArchiveReader | None = None,
    part: Part | None = None,
    first: FirstPage | None = None,
) -> AsyncGenerator[Page, None]:
    """Read a session page by page, in position order.

    The next page is requested before the current page is decoded, so that the server works in the meantime.

    Args:
        log: the log to read.
        session: the session that holds the entries.
        selection: the lanes and kinds to return.
        after: read entries after this cursor.
        until: read entries up to this position; None reads up to the end that the session has when the read starts.
        archive: the archive, from which trimmed entries are read, even if they are trimmed during the read. None
            means no archive.
        part: the part of a fork whose shared entries are read from `session`. None means that `session` itself is read.
        first: the first page, if it was already requested. None requests the page.

    Raises:
        CursorTrimmed: the next entries were trimmed, or the entry that is needed to check the cursor was trimmed.
        EntriesMissing: the next entries are missing, although they were not trimmed. All entries before them were
            yielded. If one lane is read, only a missing end of the lane is noticed.
        HeadMissing: the session has no head, but entries of the bus.
        ReplyTooLarge: an entry is larger than the largest reply of the server.
        ArchiveDamaged: the next entries were trimmed, and their segment in `archive` is damaged.
        LogRolledBack: the log lost entries before the cursor, or a fork's parent lost shared entries.
        ParentErased: a fork's parent was erased.
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    position, lanes = after.position, selection.in_order
    name, proof = (session, after) if part is None else (part.head.session, part.proof)
    pager = Pager(log.bounds.page_bytes, log.bounds.page_entries, len(lanes))
    ahead: asyncio.Task[LanePages] | None = None
    try:
        while until is None or position < until:
            fetched = await (
                ahead
                or fetch_page(
                    log,
                    session,
                    lanes,
                    position,
                    until,
                    pager=pager,
                    first=first,
                    is_proven=bool(proof.proof) and proof.position == position,
                )
            )
            head, pages = fetched.head, fetched.pages
            ahead = None
            if part is not None:
                part.require(head, position)
            elif head.is_erased:
                raise SessionErased(session)
            shared = head.own_start.position
            is_gone = position >= shared and head.lacks(lanes, position)
            if is_gone and archive is None:
                raise CursorTrimmed(name, str(Cursor(position)), head.first_kept)
            await _require_same_log(log, fetched, proof, archive, name=name, reach=part.end if part else position)
            proof = head.cursor
            if position < shared:
                shared = shared if until is None else min(until, shared)
                async with aclosing(_shared_pages(log, head, selection, position, shared, archive=archive)) as before:
                    async for page in before:
                        yield page
                position = shared
                continue
            # Entries after the head's position were appended during the read. Another lane's page, which was read
            # before, may lack earlier entries.
            until = head.position if until is None else min(until, head.position)
            if is_gone and archive is not None:
                edge = min(until, head.trimmed)
                async with aclosing(
                    _archive_pages(archive, head, name, selection, after=position, until=edge)
                ) as trimmed:
                    async for page in trimmed:
                        yield page
                position = edge
                continue
            bound = fetched.complete(until)
            if bound < until:
                ahead = asyncio.create_task(
                    fetch_page(log, session, lanes, bound, until, pager=pager, is_proven=part is None)
                )
                await asyncio.sleep(0)  # let the task send its request before the decoding starts
            envelopes, gap = _select(name, selection, pages, position, bound)
            if (gap := gap or await _lost_end(log, fetched, position, bound, until)) is not None:
                end = await cursor_at(log, head, gap.after, pages, archive)
                yield Page(envelopes[: gap.until], end, fetched.size_bytes)
                raise EntriesMissing(
                    name, str(Cursor(gap.after)), gap.first_kept, lane_of(gap, head, lanes, pages, fetched.count)
                )
            position = bound
            cursor = await cursor_at(log, head, bound, pages, archive)
            # The next page brings the mark of this cursor's entry. Otherwise the next head checks the end of this head,
            # which it almost always can without reading an entry.
            proof = cursor if cursor.proof and part is None else proof
            yield Page(envelopes, cursor, fetched.size_bytes, head if part is None else None)
    finally:
        if ahead is not None:
            await _end(ahead)


async def _require_same_log(
    log: Log, fetched: LanePages, proof: Cursor, archive: ArchiveReader | None, *, name: str, reach: int
) -> None:
    """Raise LogRolledBack if the log has lost entries up to `reach`, by the reader's `proof`."""
    if (found := await common_position(log, fetched.head, proof, archive, known=fetched.known)) < reach:
        raise LogRolledBack(name, reach, found)


async def _shared_pages(
    log: Log, head: SessionHead, selection: Selection, after: int, until: int, *, archive: ArchiveReader | None
) -> AsyncGenerator[Page, None]:
    """Read the entries that a fork shares with its ancestors, from the sessions that hold them."""
    for part in await lineage(log, head, after, until):
        shared = read_pages(log, part.holder, selection, Cursor(after), part.end, archive=archive, part=part)
        async with aclosing(shared) as pages:
            async for page in pages:
                yield page
        after = part.end


async def _archive_pages(
    archive: ArchiveReader, head: SessionHead, name: str, selection: Selection, *, after: int, until: int
) -> AsyncGenerator[Page, None]:
    """Read a session's trimmed entries from the archive.

    Args:
        archive: the archive.
        head: head of the session that held the entries.
        name: id of the session that is being read. If it is a fork, an ancestor may have held the entries.
        selection: the lanes and kinds to return.
        after: read entries after this position.
        until: read entries up to this position.
    """
    async with aclosing(archive.pages(head, selection.in_order, after, until)) as pages:
        try:
            async for page in pages:
                envelopes = merge(name, page.entries, page.end.position)
                size_bytes = sum(size_of(entry) for _, entries in page.entries for entry in entries)
                yield Page([each for each in envelopes if selection.takes(each)], page.end, size_bytes)
        except CursorTrimmed as gap:
            raise CursorTrimmed(name, gap.cursor, gap.first_kept) from None


async def _end(task: asyncio.Task[object]) -> None:
    """Cancel a request that is no longer needed, and ignore its outcome."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved, so that asyncio does not log it


async def _lost_end(log: Log, fetched: LanePages, after: int, bound: int, until: int) -> Gap | None:
    """Return the gap if one lane is read and its end is missing; None if it is there.

    Missing entries before the end are not noticed, because the head knows only where the lane ends.

    Args:
        log: the log that was read.
        fetched: the entries after position `after`.
        after: the last position before the page.
        bound: the position up to which the page is complete.
        until: the last position to read.
    """
    if len(fetched.lanes) > 1:
        return None  # `_select` finds every gap
    head, (lane,), (page,) = fetched.head, fetched.lanes, fetched.pages
    if after < (lost := head.lost_in(lane)):
        return Gap(0, after, lost + 1)
    last, found = head.last_in((lane,)), last_own(page, bound) or after
    if last <= found or (last > bound and (bound < until or found == bound)):
        return None
    if last > bound:  # the lane continues after this read. So its later entries must be there
        if await has_later(log, head.session, lane, bound):
            return None
        now = await log.head(head.session)
        if now.trimmed > head.trimmed or now.is_erased or now.position < head.position:
            return None  # the later entries were trimmed or lost after this page was read
    return Gap(len(page), found, last + 1)


def _select(
    session: str, selection: Selection, pages: Sequence[Sequence[Entry]], after: int, bound: int
) -> tuple[list[Envelope], Gap | None]:
    """Return the selected envelopes up to the first gap, and the gap; None means no gap.

    Gaps are found only if both lanes are read.
    """
    lanes = selection.in_order
    has_both = len(lanes) == len(Lane)
    if selection.names is None and Lane.LLM in selection.lanes:  # else what frameworks store is left out
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        gap = find_gap(envelopes, after, bound) if has_both else None
        if Lane.LLM not in lanes:  # what a framework stores is hidden
            envelopes = [envelope for envelope in envelopes if selection.takes(envelope)]
        return (envelopes[: gap.until], gap) if gap else (envelopes, None)
    pages, gap = cut(pages, bound), None
    if has_both and not has_all(pages, after, bound):
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        gap = find_gap(envelopes, after, bound)
        envelopes = envelopes[: gap.until] if gap else envelopes
    else:
        kept = [
            (lane, [entry for entry in page if selection.may_take(lane, entry)])
            for lane, page in zip(lanes, pages, strict=True)
        ]
        envelopes = merge(session, kept, bound)
    return [envelope for envelope in envelopes if selection.takes(envelope)], gap


# Find gaps in a session's positions: entries that are missing, although no trim removed them. Pure.


class Gap(NamedTuple):
    """A range of positions whose entries are missing."""

    until: int
    """number of envelopes before the gap"""
    after: int
    """the last position before the gap"""
    first_kept: int
    """the first position after the gap"""


def find_gap(envelopes: Sequence[Envelope], after: int, bound: int) -> Gap | None:
    """Return the first gap after position `after` in the envelopes of both lanes, which must end at `bound`; or None.

    Entries of the bus have ids that end in -0. An entry 5-1 of a foreign client does not fill the gap of a deleted 5-0.
    """
    position = after
    for index, envelope in enumerate(envelopes):
        own = envelope.position + (envelope.delta > 0)
        if own > position + 1:
            return Gap(index, position, own)
        if not envelope.delta:
            position = max(position, envelope.position)
    return Gap(len(envelopes), position, bound + 1) if position < bound else None


def lane_of(gap: Gap, head: SessionHead, lanes: Sequence[Lane], pages: Sequence[Sequence[Entry]], count: int) -> str:
    """Return the name of the lane in which the entries of a gap are missing; "" if the head does not say.

    Args:
        gap: the gap.
        head: the session's head.
        lanes: the lanes that were read.
        pages: the entries of each lane.
        count: number of entries that were requested of each lane. A page with fewer holds the rest of its lane.
    """
    if len(lanes) == 1:
        return lanes[0].value
    ended = [
        lane
        for lane, page in zip(lanes, pages, strict=True)
        if len(page) < count and last_own(page, head.position) <= gap.after < head.last_in((lane,))
    ]
    return ended[0].value if len(ended) == 1 else ""


def has_all(pages: Iterable[Sequence[Entry]], after: int, bound: int) -> bool:
    """Return whether the pages of both lanes together contain every position after `after` and up to `bound`.

    The pages must end at `bound`. Ids that do not end in -0 are ignored, because a foreign client wrote such entries.
    """
    found = {position_of(entry) for page in pages for entry in page if entry[0].endswith(b"-0")}
    return len(found) == bound - after and (not found or min(found) > after)


def last_own(page: Sequence[Entry], bound: int) -> int:
    """Return the position of the last entry of the bus in a page, up to position `bound`; 0 if there is none."""
    own = (position_of(entry) for entry in reversed(page) if entry[0].endswith(b"-0"))
    return next((position for position in own if position <= bound), 0)


# Merge pages of several lanes into one list of envelopes. Pure.

_PLACE = itemgetter(Envelope._fields.index("position"), Envelope._fields.index("delta"))
"""The sort key of envelopes. A foreign id such as 7-5 sorts after 7-0, even if 7-0 is in the other lane."""


def cut(pages: Iterable[Sequence[Entry]], bound: int) -> list[Sequence[Entry]]:
    """Return the pages without the entries after position `bound`."""
    return [_cut(page, bound) for page in pages]


def merge(session: str, pages: Iterable[tuple[Lane, Sequence[Entry]]], bound: int) -> list[Envelope]:
    """Return the envelopes of several lanes up to `bound`, in the order of their ids."""
    merged, filled = list[Envelope](), 0
    for lane, page in pages:
        filled += bool(page)
        merged += [decode(session, lane, entry) for entry in _cut(page, bound)]
    if filled > 1:
        merged.sort(key=_PLACE)
    return merged


def _cut(page: Sequence[Entry], bound: int) -> Sequence[Entry]:
    if not page or position_of(page[-1]) <= bound:
        return page
    return [entry for entry in page if position_of(entry) <= bound]


# Read pages of raw entries, either of a session's lanes together with its head, or of a single stream.

SMALL_BYTES = 16_384
"""A reply of at most this size never makes the server close the connection: the server's output limit does not count
the buffer of such a reply."""

_FIRST_SIZE = Script("first_size")


@dataclass(frozen=True, slots=True)
class LanePages:
    """A page of a session's lanes."""

    head: SessionHead
    lanes: Sequence[Lane]
    pages: list[list[Entry]]
    """one page for each lane"""
    count: int
    """number of entries that were requested of each lane. A page with this many entries is full, and more may follow"""
    size_bytes: int
    """bytes of the entries"""
    known: Mapping[int, FoundMark]
    """the entry before the page, by its position, if it was requested; for `common_position`"""

    def complete(self, until: int) -> int:
        """Return the position up to which the pages are complete, at most `until`.

        A foreign client may have written several ids at a position, such as 7-5 after 7-0. So a full page may lack ids
        of its last position, and this position does not count as complete. It does if it is the page's only one:
        `fetch_page` has then read all its ids.
        """
        return min([until, *(whole(page) for page in self.pages if len(page) >= self.count)])


def whole(page: Sequence[Entry]) -> int:
    """Return the position up to which a full page is complete. The page must be a result of `with_rest`."""
    first, last = position_of(page[0]), position_of(page[-1])
    return last if first == last else last - 1


async def fetch_page(
    log: Log,
    session: str,
    lanes: Sequence[Lane],
    after: int,
    until: int | None,
    *,
    pager: Pager,
    first: FirstPage | None = None,
    is_proven: bool = False,
) -> LanePages:
    """Read the head and a page of each lane, oldest entries first.

    The head is read before the lanes, so the lanes contain every entry up to the head's position. The head is read
    again after the lanes, to detect a trim or erasure in between.

    Args:
        log: the log to read.
        session: the session to read.
        lanes: the lanes to read.
        after: read entries after this position.
        until: read entries up to this position; None reads to the end.
        pager: chooses the number of entries. The pager gets the sizes of the entries, and requests fewer entries after
            a lost reply.
        first: this page, if it was already requested; `pager` must then be unused. None requests the page.
        is_proven: whether to read the mark of the entry at `after` too, in the same round trip.

    Raises:
        ReplyTooLarge: an entry is larger than the largest reply of the server.
        HeadMissing: the session has no head, but entries of the bus.
        Refused: the server answered with an error.
        Unavailable: the server did not answer.
    """
    replies = [] if first is None else first.take(after)
    while True:
        count = pager.count
        commands = _page_commands(log, session, lanes, after, until=until, count=count, is_proven=is_proven)
        try:
            replies = replies or [
                reply
                for group in ([[each] for each in commands] if pager.is_apart else [commands])
                for reply in await log.pool.call_many(group)
            ]
        except AnswerLost as lost:
            if not pager.shrink():
                raise await _too_large(log, session, lanes, after, lost) from None
            continue
        head_reply, *page_replies, last_reply = replies[: len(lanes) + 2]
        head, later = read_head(session, head_reply), read_head(session, last_reply)
        known = {} if len(replies) == len(lanes) + 2 else {after: await _known(log, session, after, replies[-1])}
        if later.is_erased or later.position < head.position:
            head = later  # the session was erased, or the log was rolled back
        elif later.trimmed > head.trimmed:
            head = head._replace(
                trimmed=later.trimmed,
                trimmed_by=later.trimmed_by,
                trimmed_proof=later.trimmed_proof,
                trimmed_llm=later.trimmed_llm,
                trimmed_extension=later.trimmed_extension,
            )
        found = [cast("list[Entry]", answered(page)) for page in page_replies]
        found = [await with_rest(log, session, lane, page, count) for lane, page in zip(lanes, found, strict=True)]
        size_bytes = sum(size_of(e) for page in found for e in page)
        pager.took(sum(map(len, found)), size_bytes, head.size_bytes)
        if not (head.is_there or later.created):
            last = max((position_of(page[-1]) for page in found if page and token_of(page[-1])), default=0)
            if last:
                raise HeadMissing(session, last)
        return LanePages(head, lanes, found, count, size_bytes, known)


async def has_later(log: Log, session: str, lane: Lane, position: int) -> bool:
    """Return whether a session's own lane has any entry after a position. No entry is transferred.

    Raises:
        Refused: the server answered with an error.
        Unavailable: the server did not answer.
    """
    return bool(await log.run(_FIRST_SIZE, (log.keys.lane(session, lane),), (position,)))


async def _known(log: Log, session: str, position: int, reply: Reply | Refused) -> FoundMark:
    if isinstance(reply, Refused) and reply.code == "NOSCRIPT":
        return await written_here(log, session, position)
    return read_written(reply)


def first_page(log: Log, session: str, lanes: Sequence[Lane], after: Cursor) -> FirstPage:
    """Return a request for the first page of a session's lanes after a cursor. The caller has to send its commands."""
    count = Pager(log.bounds.page_bytes, log.bounds.page_entries, len(lanes)).count
    position, is_proven = after.position, bool(after.proof)
    commands = _page_commands(log, session, lanes, position, until=None, count=count, is_proven=is_proven)
    return FirstPage(session, position, commands)


def _page_commands(
    log: Log, session: str, lanes: Sequence[Lane], after: int, *, until: int | None, count: int, is_proven: bool
) -> list[Sequence[Argument]]:
    end = "+" if until is None else str(until)  # without a "-", this includes all ids of the position, such as 7-5
    head = head_command(log.keys, session)
    return [
        head,
        *(("XRANGE", log.keys.lane(session, lane), f"{after + 1}-0", end, "COUNT", count) for lane in lanes),
        head,
        # The header alone, because the message may not fit into the reply.
        *([WRITTEN_BY.command(*written_command(log, session, after))] if is_proven else []),
    ]


async def with_rest(log: Log, session: str, lane: Lane, page: list[Entry], count: int) -> list[Entry]:
    """If a full page contains a single position, add the entries with the other ids of that position.

    A foreign client wrote these entries. Adds as many of them as fit into one reply.

    Raises:
        Refused: the server answered with an error.
        Unavailable: the server did not answer.
    """
    if len(page) < count or position_of(page[0]) != (only := position_of(page[-1])):
        return page
    start, most = f"({page[-1][0].decode()}", log.bounds.page_entries
    while most:
        try:
            rest = await log.pool.call("XRANGE", log.keys.lane(session, lane), start, only, "COUNT", most)
        except AnswerLost:
            most //= 2
        else:
            return page + cast("list[Entry]", rest)
    return page


async def _too_large(log: Log, session: str, lanes: Sequence[Lane], after: int, lost: AnswerLost) -> BusError:
    """Return the error to raise if even a reply with one entry is lost.

    This is `ReplyTooLarge` if the first entry after position `after` is large, and `lost` if it is not.

    Raises:
        Unavailable: the server cannot be reached, so the entry's size is not the cause.
    """
    for lane in lanes:
        found = await log.run(_FIRST_SIZE, (log.keys.lane(session, lane),), (after,))
        match cast("list[int]", found):
            case [position, size_bytes] if size_bytes > SMALL_BYTES:
                return ReplyTooLarge(session, position, size_bytes)
            case _:
                pass
    return lost


async def stream_pages(log: Log, key: str, first: str = "-", last: str = "+") -> AsyncGenerator[list[Entry], None]:
    """Read the entries of one stream, in pages that fit into a reply.

    Args:
        log: the log to read.
        key: the stream.
        first: the first id to read, in the form of XRANGE.
        last: the last id to read, in the form of XRANGE.

    Raises:
        Refused: the server answered with an error.
        Unavailable: the server did not answer.
    """
    pager = Pager(log.bounds.page_bytes, log.bounds.page_entries)
    while True:
        count = pager.count
        try:
            page = cast("list[Entry]", await log.pool.call("XRANGE", key, first, last, "COUNT", count))
        except AnswerLost:
            if not pager.shrink():
                raise
            continue
        pager.took(len(page), sum(map(size_of, page)))
        if page:
            yield page
        if len(page) < count:
            return
        first = f"({page[-1][0].decode()}"


def size_of(entry: Entry) -> int:
    """Return the size of an entry's message, in bytes."""
    return len(entry[1][-1]) if entry[1] else 0


GROWTH = 4
"""A page may be at most this many times larger than the previous page, because later entries may be larger."""


LARGE_SHARE = 16
"""If a session does not fit into one reply, a page has about the maximum size of a reply divided by this number.
Larger pages are not faster."""


class Pager:
    """Chooses how many entries of each stream to request, so that a reply stays below the server's output limit.

    A server closes the connection of a client whose replies exceed `client-output-buffer-limit`, and would do so again
    for the same request. The first page assumes that each entry has the largest allowed size; later pages use the sizes
    read so far. After a lost reply the next page is at most half as large, down to one entry of one stream.
    """

    def __init__(self, budget_bytes: int, most: int, streams: int = 1) -> None:
        """
        Args:
            budget_bytes: maximum number of bytes of JSON in a reply.
            most: maximum number of entries of each stream in a reply.
            streams: number of streams that one request reads.
        """
        self._budget, self._most, self._streams = budget_bytes, most, max(streams, 1)
        self.is_apart = False
        """whether to request each stream separately"""
        self.count = min(most, self._safe)
        """number of entries of each stream to request next"""

    def took(self, entries: int, size_bytes: int, held_bytes: int | None = None) -> None:
        """Choose the next count from the sizes of the page that was read.

        Args:
            entries: number of entries in the page, over all streams.
            size_bytes: bytes of JSON of these entries.
            held_bytes: bytes of JSON of the whole session; None means unknown.
        """
        if held_bytes is not None and held_bytes <= self._budget:
            self.count = self._most
        elif entries:
            fitting = self._budget * entries // (LARGE_SHARE * self._streams * max(size_bytes, 1))
            self.count = min(self._most, max(self._safe, min(fitting, self.count * GROWTH)))

    def shrink(self) -> bool:
        """Reduce the next count after a lost reply, because the reply may have been too large.

        Return False if the count cannot be reduced further.
        """
        if self.count > 1:
            self._budget = max(self._budget // 2, 1)
            self.count = min(self.count // 2, self._safe)
        elif self._streams > 1 and not self.is_apart:
            self.is_apart = True
        else:
            return False
        return True

    @property
    def _safe(self) -> int:
        return max(1, self._budget // (self._streams * MESSAGE_LIMIT_BYTES))
