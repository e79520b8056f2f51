"""Pages of a session's log as envelopes: both lanes merged by position, nothing shown that could still have a gap."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import NamedTuple

import anyio

from bus.codec import Entry, decode, position_of, token_of
from bus.envelope import Cursor, Envelope
from bus.errors import CursorTrimmed, LogRolledBack, SessionErased
from bus.fork import Part, lineage, written_by
from bus.head import SessionHead
from bus.incarnations import agreed
from bus.log import Fetched, FirstPage, Log
from bus.messages.lanes import Lane
from bus.pager import Pager
from bus.past import Past
from bus.selection import Selection

__all__ = (
    "Hole",
    "Page",
    "cursor_at",
    "cut",
    "find_hole",
    "has_all",
    "merge",
    "read_pages",
)


class Page(NamedTuple):
    """What a reader wanted of a stretch of the log."""

    envelopes: list[Envelope]
    cursor: Cursor
    """the end of the stretch, whatever was wanted of it"""


async def read_pages(
    log: Log,
    session: str,
    selection: Selection,
    after: Cursor,
    until: int | None,
    *,
    past: Past | None = None,
    part: Part | None = None,
    first: FirstPage | None = None,
) -> AsyncGenerator[Page, None]:
    """What stands after a cursor and up to `until`, page by page in position order; None is up to the present end.

    The next page is asked for before this one is decoded, so the server works meanwhile.

    Args:
        past: where to look for what was trimmed away, also while this reads.
        part: read in the name of a fork that shares these entries.
        first: the first page, if it was asked for already.

    Raises:
        CursorTrimmed: what comes next after the cursor was trimmed away, or what would prove the cursor.
        ReplyTooLarge: one entry is larger than what the server sends in a reply.
        ArchiveDamaged: it was, and `past` has not kept it whole.
        LogRolledBack: the log has lost what the cursor's reader saw, or a fork's parent has lost what they shared.
        ParentErased: a fork's parent was erased.
        SessionErased: there is nothing to read any more.
        Unavailable: the server cannot be reached.
    """
    position, lanes = after.position, selection.in_order
    name = session if part is None else part.head.session
    proof = after if part is None else part.proof
    pager = Pager(log.bounds.page_bytes, log.bounds.page_entries, len(lanes))
    ahead: asyncio.Task[Fetched] | None = None
    try:
        while until is None or position < until:
            fetched = await (ahead or log.page(session, lanes, position, until, pager, first=first))
            head, pages = fetched.head, fetched.pages
            ahead = None
            if part is not None:
                part.require(head, position)
            elif head.is_erased:
                raise SessionErased(session)
            shared = head.own_start.position
            is_gone = position >= shared and head.lacks(lanes, position)
            if is_gone and past is None:
                raise CursorTrimmed(name, str(Cursor(position)), head.trimmed + 1)
            reach = position if part is None else part.end
            if (found := await agreed(log, head, proof, past)) < reach:
                raise LogRolledBack(name, reach, found)
            # This head lists its own newest incarnation, and so, as good as always, does the next one that is read.
            proof = head.cursor
            if position < shared:
                shared = shared if until is None else min(until, shared)
                async with aclosing(_shared_pages(log, head, selection, position, shared, past=past)) as before:
                    async for page in before:
                        yield page
                position = shared
                continue
            # What is above the head was not there when the head was read: another lane's page may lack what is before.
            until = head.position if until is None else min(until, head.position)
            if is_gone and past is not None:
                edge = min(until, head.trimmed)
                async with aclosing(_past_pages(past, head, name, selection, after=position, until=edge)) as trimmed:
                    async for page in trimmed:
                        yield page
                position = edge
                continue
            bound = fetched.complete(until)
            if bound < until:
                ahead = asyncio.create_task(log.page(session, lanes, bound, until, pager))
                await asyncio.sleep(0)  # so that it is sent before the decoding begins
            envelopes, hole = _selected(name, selection, pages, position, bound)
            if hole is not None:
                yield Page(envelopes, Cursor(hole.after, 0, envelopes[-1].incarnation if envelopes else ""))
                raise CursorTrimmed(name, str(Cursor(hole.after)), hole.first_kept)
            position = bound
            yield Page(envelopes, await cursor_at(log, head, bound, pages, past))
    finally:
        if ahead is not None:
            await _end(ahead)


async def _shared_pages(
    log: Log, head: SessionHead, selection: Selection, after: int, until: int, *, past: Past | None
) -> AsyncGenerator[Page, None]:
    """What a fork shares with those it comes from, from whoever holds it."""
    for part in await lineage(log, head, after, until):
        shared = read_pages(log, part.holder, selection, Cursor(after), part.end, past=past, part=part)
        async with aclosing(shared) as pages:
            async for page in pages:
                yield page
        after = part.end


async def _past_pages(
    past: Past, head: SessionHead, name: str, selection: Selection, *, after: int, until: int
) -> AsyncGenerator[Page, None]:
    """What was trimmed away of a session, in whosever name it is read."""
    async with aclosing(past.pages(head, selection.in_order, after, until)) as pages:
        try:
            async for page in pages:
                envelopes = merge(name, page.entries, page.end.position)
                yield Page([each for each in envelopes if selection.takes(each)], page.end)
        except CursorTrimmed as gap:
            raise CursorTrimmed(name, gap.cursor, gap.first_kept) from None


async def cursor_at(
    log: Log, head: SessionHead, position: int, pages: Iterable[Sequence[Entry]], past: Past | None = None
) -> Cursor:
    """Return the cursor of a reader that has seen all up to a position.

    Args:
        head: read before or with the pages.
        pages: entries that were read, in order; the one at the position may be among them.
    """
    token = head.incarnation_of(position)
    if token is None:
        for page in pages:
            for entry in reversed(page):
                if (place := position_of(entry)) <= position:
                    if place == position:
                        token = token_of(entry)
                    break
    if token is None:  # it is in a lane that was not read
        token = await written_by(log, head, position, past)
    return Cursor(position, 0, token or "")


async def _end(task: asyncio.Task[object]) -> None:
    """Stop what was asked for ahead and is not wanted any more, whatever it came to."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told of it


def _selected(
    session: str, selection: Selection, pages: Sequence[Sequence[Entry]], after: int, bound: int
) -> tuple[list[Envelope], "Hole | None"]:
    """What is wanted of the pages, up to the first hole, and that."""
    lanes = selection.in_order
    can_tell = len(lanes) == len(Lane)
    if selection.names is None:
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        hole = find_hole(envelopes, after) if can_tell else None
        return (envelopes[: hole.until], hole) if hole else (envelopes, None)
    pages, hole = cut(pages, bound), None
    if can_tell and not has_all(pages, after, bound):
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        hole = find_hole(envelopes, after)
        envelopes = envelopes[: hole.until] if hole else envelopes
    else:
        kept = [
            (lane, [entry for entry in page if selection.may_take(lane, entry)])
            for lane, page in zip(lanes, pages, strict=True)
        ]
        envelopes = merge(session, kept, bound)
    return [envelope for envelope in envelopes if selection.takes(envelope)], hole


def cut(pages: Iterable[Sequence[Entry]], bound: int) -> list[Sequence[Entry]]:
    """The pages without what stands behind a position."""
    return [
        page if not page or position_of(page[-1]) <= bound else [e for e in page if position_of(e) <= bound]
        for page in pages
    ]


def has_all(pages: Iterable[Sequence[Entry]], after: int, bound: int) -> bool:
    """Whether pages of both lanes, which end at `bound`, lack no position behind `after`.

    Only ids that end in -0 count. Another client may have written 4-5, which does not replace a deleted 4-0.
    """
    found = {position_of(entry) for page in pages for entry in page if entry[0].endswith(b"-0")}
    return len(found) == bound - after and (not found or min(found) > after)


def merge(session: str, pages: Iterable[tuple[Lane, Sequence[Entry]]], bound: int) -> list[Envelope]:
    """The envelopes of several lanes up to `bound`, in the order of their ids."""
    merged, filled = list[Envelope](), 0
    for lane, page in pages:
        filled += bool(page)
        if page and position_of(page[-1]) > bound:
            page = [entry for entry in page if position_of(entry) <= bound]  # noqa: PLW2901  # the same page, shorter
        merged += [decode(session, lane, entry) for entry in page]
    if filled > 1:
        merged.sort(key=_PLACE)
    return merged


class Hole(NamedTuple):
    """Where positions do not follow each other: an entry between them was deleted by somebody else."""

    until: int
    """how many envelopes stand before it"""
    after: int
    """the last position before it"""
    first_kept: int


def find_hole(envelopes: Sequence[Envelope], after: int) -> Hole | None:
    """Return the first hole in envelopes of both lanes behind position `after`, or None.

    An id such as 5-1 is of another client. It comes behind 5-0 and does not replace it.
    """
    position = after
    for index, envelope in enumerate(envelopes):
        own = envelope.position + (envelope.delta > 0)
        if own > position + 1:
            return Hole(index, position, own)
        if not envelope.delta:
            position = max(position, envelope.position)
    return None


_PLACE = itemgetter(Envelope._fields.index("position"), Envelope._fields.index("delta"))
"""Of an envelope. What a foreign client wrote as 7-5 comes behind 7-0, which may stand in the other lane."""
