"""Pages of a session's log as envelopes: both lanes merged by position, nothing shown that could still have a gap."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import NamedTuple, Protocol

import anyio

from bus.codec import Entry, decode
from bus.envelope import Cursor, Envelope
from bus.errors import CursorTrimmed, LogRolledBack, SessionErased
from bus.fork import Part, lineage
from bus.head import SessionHead
from bus.log import Log, Rider
from bus.messages.lanes import Lane
from bus.selection import Selection

__all__ = (
    "PAGE",
    "SAFE_PAGE",
    "SMALL_BYTES",
    "Hole",
    "Page",
    "Past",
    "PastPage",
    "cut",
    "find_hole",
    "has_all",
    "merge",
    "position_of",
    "read_pages",
)

PAGE = 500
SAFE_PAGE = 60
"""Entries of one lane in one reply. The server cuts a link whose reply outgrows its limit (64 MB in the embedded one),
so a session that holds more than `SMALL_BYTES` is read in pages that stay below it even if each message is as large as
a message may be."""

SMALL_BYTES = 32 * 1_048_576


class Page(NamedTuple):
    """What a reader wanted of a stretch of the log."""

    envelopes: list[Envelope]
    cursor: Cursor
    """the end of the stretch, whatever was wanted of it"""


class PastPage(NamedTuple):
    """Entries of several lanes up to a position."""

    until: int
    entries: Sequence[tuple[Lane, Sequence[Entry]]]


class Past(Protocol):
    """Where entries are that were trimmed away."""

    def pages(self, head: SessionHead, lanes: Sequence[Lane], after: int, until: int) -> AsyncGenerator[PastPage, None]:
        """The entries of some lanes above `after` and up to `until`, in order and without a hole over both lanes.

        Raises:
            CursorTrimmed: what comes next is not there either. What comes before it was given.
            ArchiveDamaged: it is there, and is not what it was.
            LogRolledBack: what is there is of another log than this head.
            Unavailable, SetupError: the place cannot be reached.
        """
        ...


async def read_pages(
    log: Log,
    session: str,
    selection: Selection,
    after: Cursor,
    until: int | None,
    *,
    past: Past | None = None,
    part: Part | None = None,
    rider: Rider | None = None,
) -> AsyncGenerator[Page, None]:
    """What stands after a cursor and up to `until`, page by page in position order; None is up to the present end.

    The next page is asked for before this one is decoded, so the server works meanwhile.

    Args:
        past: where to look for what was trimmed away, also while this reads.
        part: read in the name of a fork that shares these entries.
        rider: goes out with the first page.

    Raises:
        CursorTrimmed: what comes next after the cursor was trimmed away.
        ArchiveDamaged: it was, and `past` has not kept it whole.
        LogRolledBack: the log has lost what the cursor's reader saw, or a fork's parent has lost what they shared.
        ParentErased: a fork's parent was erased.
        SessionErased: there is nothing to read any more.
        Unavailable: the server cannot be reached.
    """
    position, count, seen, lanes = after.position, SAFE_PAGE, after, selection.in_order
    ahead: asyncio.Task[tuple[SessionHead, list[list[Entry]]]] | None = None
    try:
        while until is None or position < until:
            head, pages = await (ahead or log.page(session, lanes, position, until, count, rider=rider))
            ahead = rider = None
            holder = head
            if part is not None:
                part.require(head, position)
                head = part.under(head)
            elif head.is_erased:
                raise SessionErased(session)
            shared = head.own_start.position
            is_gone = position >= shared and head.lacks(lanes, position)
            if is_gone and past is None:
                raise CursorTrimmed(head.session, str(Cursor(position)), head.trimmed + 1)
            if not head.holds(seen):
                raise LogRolledBack(head.session, position, head.agreed(seen))
            if position < shared:
                shared = shared if until is None else min(until, shared)
                async with aclosing(_shared_pages(log, head, selection, position, shared, past=past)) as before:
                    async for page in before:
                        yield page
                position, seen = shared, head.cursor_at(shared)
                continue
            # What is above the head was not there when the head was read: another lane's page may lack what is before.
            until = head.position if until is None else min(until, head.position)
            if is_gone and past is not None:
                edge = min(until, head.trimmed)
                async with aclosing(_past_pages(past, holder, head, selection, after=position, until=edge)) as trimmed:
                    async for page in trimmed:
                        yield page
                position, seen = edge, head.cursor_at(edge)
                continue
            bound = min([until, *(position_of(page[-1]) for page in pages if len(page) == count)])
            count = PAGE if head.size_bytes < SMALL_BYTES else SAFE_PAGE
            if bound < until:
                ahead = asyncio.create_task(log.page(session, lanes, bound, until, count))
                await asyncio.sleep(0)  # so that it is sent before the decoding begins
            envelopes, hole = _selected(head, selection, pages, position, bound)
            if hole is not None:
                yield Page(envelopes, head.cursor_at(hole.after))
                raise CursorTrimmed(head.session, str(Cursor(hole.after)), hole.first_kept)
            position, seen = bound, head.cursor_at(bound)
            yield Page(envelopes, seen)
    finally:
        if ahead is not None:
            await _end(ahead)


async def _shared_pages(
    log: Log, head: SessionHead, selection: Selection, after: int, until: int, *, past: Past | None
) -> AsyncGenerator[Page, None]:
    """What a fork shares with those it comes from, from whoever holds it."""
    for part in await lineage(log, head, after, until):
        shared = read_pages(log, part.holder, selection, Cursor(after), part.end.position, past=past, part=part)
        async with aclosing(shared) as pages:
            async for page in pages:
                yield page
        after = part.end.position


async def _past_pages(
    past: Past, holder: SessionHead, head: SessionHead, selection: Selection, *, after: int, until: int
) -> AsyncGenerator[Page, None]:
    """What was trimmed away of a session, in whosever name it is read."""
    async with aclosing(past.pages(holder, selection.in_order, after, until)) as pages:
        try:
            async for page in pages:
                envelopes = merge(head, page.entries, page.until)
                yield Page([each for each in envelopes if selection.takes(each)], head.cursor_at(page.until))
        except CursorTrimmed as gap:
            raise CursorTrimmed(head.session, gap.cursor, gap.first_kept) from None


async def _end(task: asyncio.Task[object]) -> None:
    """Stop what was asked for ahead and is not wanted any more, whatever it came to."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told of it


def _selected(
    head: SessionHead, selection: Selection, pages: Sequence[Sequence[Entry]], after: int, bound: int
) -> tuple[list[Envelope], "Hole | None"]:
    """What is wanted of the pages, up to the first hole, and that."""
    lanes = selection.in_order
    can_tell = len(lanes) == len(Lane)
    if selection.names is None:
        envelopes = merge(head, zip(lanes, pages, strict=True), bound)
        hole = find_hole(envelopes, after) if can_tell else None
        return (envelopes[: hole.until], hole) if hole else (envelopes, None)
    pages, hole = cut(pages, bound), None
    if can_tell and not has_all(pages, after, bound):
        envelopes = merge(head, zip(lanes, pages, strict=True), bound)
        hole = find_hole(envelopes, after)
        envelopes = envelopes[: hole.until] if hole else envelopes
    else:
        kept = [
            (lane, [entry for entry in page if selection.may_take(lane, entry)])
            for lane, page in zip(lanes, pages, strict=True)
        ]
        envelopes = merge(head, kept, bound)
    return [envelope for envelope in envelopes if selection.takes(envelope)], hole


def cut(pages: Iterable[Sequence[Entry]], bound: int) -> list[Sequence[Entry]]:
    """The pages without what stands behind a position."""
    return [
        page if not page or position_of(page[-1]) <= bound else [e for e in page if position_of(e) <= bound]
        for page in pages
    ]


def has_all(pages: Iterable[Sequence[Entry]], after: int, bound: int) -> bool:
    """Whether pages of both lanes lack nothing between two positions."""
    return sum(map(len, pages)) == bound - after


def merge(head: SessionHead, pages: Iterable[tuple[Lane, Sequence[Entry]]], bound: int) -> list[Envelope]:
    """The envelopes of several lanes up to `bound`, in position order."""
    session, merged, filled = head.session, list[Envelope](), 0
    newest = head.incarnation_of(bound)
    began = head.incarnations[-1].start if head.incarnations else 0
    for lane, page in pages:
        filled += bool(page)
        if page and position_of(page[-1]) > bound:
            page = [entry for entry in page if position_of(entry) <= bound]  # noqa: PLW2901  # the same page, shorter
        if page and position_of(page[0]) > began:  # as good as always
            merged += [decode(session, lane, entry, newest) for entry in page]
        else:
            merged += [decode(session, lane, entry, head.incarnation_of(position_of(entry))) for entry in page]
    if filled > 1:
        merged.sort(key=_POSITION)
    return merged


class Hole(NamedTuple):
    """Where positions do not follow each other: an entry between them was deleted by somebody else."""

    until: int
    """how many envelopes stand before it"""
    after: int
    """the last position before it"""
    first_kept: int


def find_hole(envelopes: Sequence[Envelope], after: int) -> Hole | None:
    """The first hole in envelopes of both lanes behind position `after`, or None."""
    if not envelopes or len(envelopes) == envelopes[-1].position - after:
        return None  # as good as always
    position = after
    for index, envelope in enumerate(envelopes):
        if envelope.position > position + 1:
            return Hole(index, position, envelope.position)
        position = max(position, envelope.position)
    return None


def position_of(entry: Entry) -> int:
    """The position in an entry's id."""
    return int(entry[0].partition(b"-")[0])


_POSITION = itemgetter(Envelope._fields.index("position"))
