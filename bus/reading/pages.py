"""Pages of the streams as the server has them: of a session's lanes together with its head, or of any one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import AnswerLost, ReplyTooLarge
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead, head_command, read_head
from lanebus.bus.log.script import Script
from lanebus.bus.reading.page_size import Pager
from lanebus.bus.servers.replies import answered
from lanebus.bus.wire.codec import Entry, position_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.log import Log
    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.servers.topology import Argument

__all__ = ("LanePages", "fetch_page", "first_page", "stream_pages", "whole", "with_rest")

SMALL_BYTES = 16_384
"""No server closes a connection over so small a reply: it is sent from a buffer that the limit does not count."""

_FIRST_SIZE = Script("first_size")


@dataclass(frozen=True, slots=True)
class LanePages:
    """A page of a session's lanes."""

    head: SessionHead
    pages: list[list[Entry]]
    """one a lane"""
    count: int
    """entries that were asked for of each lane: a page of so many may not be the last"""

    def complete(self, until: int) -> int:
        """Return the position up to which the pages hold all there is, `until` at most.

        A foreign client may have written below a position, such as 7-5 behind 7-0. So a full page is not known to hold
        all of its last position, unless that is its only one, whose rest `fetch_page` reads.
        """
        return min([until, *(whole(page) for page in self.pages if len(page) >= self.count)])


def whole(page: Sequence[Entry]) -> int:
    """Return the position up to which a full page, as `with_rest` returns it, holds all of its lane."""
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
) -> LanePages:
    """Read the head, then some entries of each lane above `after` and up to `until`, oldest first.

    The head is read first: whatever it counts is in the lanes by the time they are read. It is read again last, to see
    what was trimmed or erased in between.

    Args:
        pager: how many to ask for. It is given the sizes that came, and shrinks if an answer is lost.
        first: this page, if it was asked for already; for a pager that has not been used.

    Raises:
        ReplyTooLarge: one entry is larger than what the server sends in a reply.
        Refused, Unavailable: the server cannot answer.
    """
    replies = [] if first is None else first.take(after)
    while True:
        count = pager.count
        commands = _page_commands(log, session, lanes, after, until=until, count=count)
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
        head, later = read_head(session, replies[0]), read_head(session, replies[-1])
        if later.trimmed > head.trimmed or later.is_erased:
            head = head._replace(
                trimmed=later.trimmed,
                trimmed_by=later.trimmed_by,
                trimmed_llm=later.trimmed_llm,
                trimmed_extension=later.trimmed_extension,
                is_erased=later.is_erased,
            )
        found = [cast("list[Entry]", answered(page)) for page in replies[1:-1]]
        found = [await with_rest(log, session, lane, page, count) for lane, page in zip(lanes, found, strict=True)]
        pager.took(sum(map(len, found)), sum(size_of(e) for page in found for e in page), head.size_bytes)
        return LanePages(head, found, count)


def first_page(log: Log, session: str, lanes: Sequence[Lane], after: int) -> FirstPage:
    """Return the commands that read the first page of a session's lanes above `after`; the caller sends them."""
    pager = Pager(log.bounds.page_bytes, log.bounds.page_entries, len(lanes))
    return FirstPage(session, after, _page_commands(log, session, lanes, after, until=None, count=pager.count))


def _page_commands(
    log: Log, session: str, lanes: Sequence[Lane], after: int, *, until: int | None, count: int
) -> list[Sequence[Argument]]:
    end = "+" if until is None else str(until)  # with what others wrote below that position; feeds go on behind it
    head = head_command(log.keys, session)
    return [
        head,
        *(("XRANGE", log.keys.lane(session, lane), f"{after + 1}-0", end, "COUNT", count) for lane in lanes),
        head,
    ]


async def with_rest(log: Log, session: str, lane: Lane, page: list[Entry], count: int) -> list[Entry]:
    """Add to a full page that holds a single position what a foreign client wrote below that, as far as a reply
    can hold it.

    Raises:
        Refused, Unavailable: the server cannot answer.
    """
    if len(page) < count or position_of(page[0]) != (only := position_of(page[-1])):
        return page
    behind, most = f"({page[-1][0].decode()}", log.bounds.page_entries
    while most:
        try:
            rest = await log.pool.call("XRANGE", log.keys.lane(session, lane), behind, only, "COUNT", most)
        except AnswerLost:
            most //= 2
        else:
            return page + cast("list[Entry]", rest)
    return page


async def _too_large(log: Log, session: str, lanes: Sequence[Lane], after: int, lost: AnswerLost) -> BusError:
    """Return why one entry behind a position cannot be read: `ReplyTooLarge` if it is large, else the lost answer.

    Raises:
        Unavailable: the server cannot be reached now, so the entry is not the reason.
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

    Raises:
        Refused, Unavailable: the server cannot answer.
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
    """Return the bytes of an entry's message."""
    return len(entry[1][-1]) if entry[1] else 0
