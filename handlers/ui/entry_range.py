"""Find the positions that a request for entries means: from a cursor, before a position, or by time."""

from collections.abc import Collection
from contextlib import aclosing
from typing import NamedTuple

from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START, Cursor

__all__ = ("EntriesQuery", "EntryRange", "find_range")


class EntriesQuery(NamedTuple):
    """The entries that a client requests. All limits apply together."""

    lanes: frozenset[Lane]
    kinds: Collection[str] | None = None
    """kinds of messages, or prefixes such as `agent.*`; None means all"""
    after: Cursor = START
    """cursor after which to start"""
    until: int | None = None
    """last position; None means the end"""
    before: int | None = None
    """position before which the range ends. The range then has the last `limit` positions and not the first"""
    limit: int | None = None
    """maximum number of positions; None means as many as the server allows"""
    since: float | None = None
    """append time of the first entry, in Unix seconds"""
    before_time: float | None = None
    """append time before which the range ends, in Unix seconds"""


class EntryRange(NamedTuple):
    """The positions to read."""

    after: Cursor
    """cursor after which to start"""
    last: int
    """last position to read"""
    end: int
    """last position that was requested; above `last` if the range is longer than one answer"""
    previous: int | None
    """value of `before` that reads the positions before this range; None if there are none"""


async def find_range(session: Session, head: SessionHead, query: EntriesQuery, *, limit: int) -> EntryRange:
    """Return the positions that a request means.

    Args:
        session: the session.
        head: its head.
        query: the request.
        limit: maximum number of positions of one answer.

    Raises:
        BusError: the session could not be read.
    """
    floor = head.trimmed if head.archived < head.trimmed else 0  # no entry up to this position can be read
    limit = limit if query.limit is None else min(query.limit, limit)
    start, end = query.after.position, head.position
    if query.until is not None:
        end = min(end, query.until)
    if query.before is not None:
        end = min(end, query.before - 1)
    if query.before_time is not None:
        end = min(end, await _position_at(session, floor, head.position, query.before_time) - 1)
    if query.since is not None:
        start = max(start, await _position_at(session, floor, head.position, query.since) - 1)
    if query.before is not None:
        start = max(start, floor, end - limit)
    after = query.after if start == query.after.position else Cursor(start)
    return EntryRange(after, min(start + limit, end), end, start + 1 if start > floor else None)


async def _position_at(session: Session, floor: int, last: int, moment: float) -> int:
    """Return the first position that was appended at a moment or later; `last` + 1 if there is none.

    A binary search: the times of a log do not decrease, except where the clock of its server was set back.
    """
    low, high = floor + 1, last + 1
    while low < high:
        middle = (low + high) // 2
        time = await _time_of(session, middle)
        if time is not None and time >= moment:
            high = middle
        else:
            low = middle + 1
    return low


async def _time_of(session: Session, position: int) -> float | None:
    async with aclosing(session.pages(after=Cursor(position - 1), until=position)) as pages:
        async for page in pages:
            for envelope in page.envelopes:
                return envelope.time
    return None
