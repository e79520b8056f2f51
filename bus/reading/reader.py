"""A session's log as pages of envelopes: forks, the archive and both lanes as one, up to the first gap."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import anyio

from lanebus.bus.errors import CursorTrimmed, LogRolledBack, SessionErased
from lanebus.bus.log.archive_reader import ArchiveReader
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead
from lanebus.bus.log.incarnations import common_position, cursor_at
from lanebus.bus.log.lineage import Part, lineage
from lanebus.bus.log.log import Log
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.gaps import Gap, find_gap, has_all
from lanebus.bus.reading.merge import cut, merge
from lanebus.bus.reading.page_size import Pager
from lanebus.bus.reading.pages import LanePages, fetch_page
from lanebus.bus.wire.codec import Entry
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.selection import Selection

__all__ = ("Page", "read_pages")


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
    past: ArchiveReader | None = None,
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
    ahead: asyncio.Task[LanePages] | None = None
    try:
        while until is None or position < until:
            fetched = await (ahead or fetch_page(log, session, lanes, position, until, pager=pager, first=first))
            head, pages = fetched.head, fetched.pages
            ahead = None
            if part is not None:
                part.require(head, position)
            elif head.is_erased:
                raise SessionErased(session)
            shared = head.own_start.position
            is_gone = position >= shared and head.lacks(lanes, position)
            if is_gone and past is None:
                raise CursorTrimmed(name, str(Cursor(position)), head.first_kept)
            reach = position if part is None else part.end
            if (found := await common_position(log, head, proof, past)) < reach:
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
                ahead = asyncio.create_task(fetch_page(log, session, lanes, bound, until, pager=pager))
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
    log: Log, head: SessionHead, selection: Selection, after: int, until: int, *, past: ArchiveReader | None
) -> AsyncGenerator[Page, None]:
    """What a fork shares with those it comes from, from whoever holds it."""
    for part in await lineage(log, head, after, until):
        shared = read_pages(log, part.holder, selection, Cursor(after), part.end, past=past, part=part)
        async with aclosing(shared) as pages:
            async for page in pages:
                yield page
        after = part.end


async def _past_pages(
    past: ArchiveReader, head: SessionHead, name: str, selection: Selection, *, after: int, until: int
) -> AsyncGenerator[Page, None]:
    """What was trimmed away of a session, in whosever name it is read."""
    async with aclosing(past.pages(head, selection.in_order, after, until)) as pages:
        try:
            async for page in pages:
                envelopes = merge(name, page.entries, page.end.position)
                yield Page([each for each in envelopes if selection.takes(each)], page.end)
        except CursorTrimmed as gap:
            raise CursorTrimmed(name, gap.cursor, gap.first_kept) from None


async def _end(task: asyncio.Task[object]) -> None:
    """Stop what was asked for ahead and is not wanted any more, whatever it came to."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told of it


def _selected(
    session: str, selection: Selection, pages: Sequence[Sequence[Entry]], after: int, bound: int
) -> tuple[list[Envelope], Gap | None]:
    """What is wanted of the pages, up to the first hole, and that."""
    lanes = selection.in_order
    can_tell = len(lanes) == len(Lane)
    if selection.names is None:
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        hole = find_gap(envelopes, after) if can_tell else None
        return (envelopes[: hole.until], hole) if hole else (envelopes, None)
    pages, hole = cut(pages, bound), None
    if can_tell and not has_all(pages, after, bound):
        envelopes = merge(session, zip(lanes, pages, strict=True), bound)
        hole = find_gap(envelopes, after)
        envelopes = envelopes[: hole.until] if hole else envelopes
    else:
        kept = [
            (lane, [entry for entry in page if selection.may_take(lane, entry)])
            for lane, page in zip(lanes, pages, strict=True)
        ]
        envelopes = merge(session, kept, bound)
    return [envelope for envelope in envelopes if selection.takes(envelope)], hole
