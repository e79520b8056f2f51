"""Read pages of raw entries, either of a session's lanes together with its head, or of a single stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import AnswerLost, HeadMissing, Refused, ReplyTooLarge
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead, head_command, read_head
from lanebus.bus.log.lineage import WRITTEN_BY, read_written, written_command, written_here
from lanebus.bus.log.script import Script
from lanebus.bus.reading.page_size import Pager
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.codec import Entry, position_of, token_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.lineage import FoundMark
    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.servers.replies import Argument, Reply
    from lanebus.bus.wire.envelope import Cursor

__all__ = ("LanePages", "fetch_page", "first_page", "has_later", "stream_pages", "whole", "with_rest")

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
