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
from bus.log import Log
from bus.messages.lanes import Lane

__all__ = (
    "PAGE",
    "SAFE_PAGE",
    "SMALL_BYTES",
    "Hole",
    "Past",
    "PastPage",
    "find_hole",
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
    lanes: Sequence[Lane],
    after: Cursor,
    until: int | None,
    *,
    past: Past | None = None,
    part: Part | None = None,
) -> AsyncGenerator[list[Envelope], None]:
    """What stands after a cursor and up to `until`, page by page in position order; None is up to the present end.

    The next page is asked for before this one is decoded, so the server works meanwhile.

    Args:
        past: where to look for what was trimmed away, also while this reads.
        part: read in the name of a fork that shares these entries.

    Raises:
        CursorTrimmed: what comes next after the cursor was trimmed away.
        ArchiveDamaged: it was, and `past` has not kept it whole.
        LogRolledBack: the log has lost what the cursor's reader saw, or a fork's parent has lost what they shared.
        ParentErased: a fork's parent was erased.
        SessionErased: there is nothing to read any more.
        Unavailable: the server cannot be reached.
    """
    position, count, seen = after.position, SAFE_PAGE, after
    ahead: asyncio.Task[tuple[SessionHead, list[list[Entry]]]] | None = None
    try:
        while until is None or position < until:
            head, pages = await (ahead or log.page(session, lanes, position, until, count))
            ahead = None
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
                async for envelopes in _shared_pages(log, head, lanes, position, shared, past=past):
                    yield envelopes
                position, seen = shared, head.cursor_at(shared)
                continue
            # What is above the head was not there when the head was read: another lane's page may lack what is before.
            until = head.position if until is None else min(until, head.position)
            if is_gone and past is not None:
                edge = min(until, head.trimmed)
                async for envelopes in _past_pages(past, holder, head, lanes, after=position, until=edge):
                    yield envelopes
                position, seen = edge, head.cursor_at(edge)
                continue
            bound = min([until, *(position_of(page[-1]) for page in pages if len(page) == count)])
            count = PAGE if head.size_bytes < SMALL_BYTES else SAFE_PAGE
            if bound < until:
                ahead = asyncio.create_task(log.page(session, lanes, bound, until, count))
                await asyncio.sleep(0)  # so that it is sent before the decoding begins
            envelopes = merge(head, zip(lanes, pages, strict=True), bound)
            if len(lanes) == len(Lane) and (hole := find_hole(envelopes, position)):
                yield envelopes[: hole.until]
                raise CursorTrimmed(head.session, str(Cursor(hole.after)), hole.first_kept)
            if envelopes:
                yield envelopes
            position, seen = bound, head.cursor_at(bound)
    finally:
        if ahead is not None:
            await _end(ahead)


async def _shared_pages(
    log: Log, head: SessionHead, lanes: Sequence[Lane], after: int, until: int, *, past: Past | None
) -> AsyncGenerator[list[Envelope], None]:
    """What a fork shares with those it comes from, from whoever holds it."""
    for part in await lineage(log, head, after, until):
        shared = read_pages(log, part.holder, lanes, Cursor(after), part.end.position, past=past, part=part)
        async with aclosing(shared) as pages:
            async for envelopes in pages:
                yield envelopes
        after = part.end.position


async def _past_pages(
    past: Past, holder: SessionHead, head: SessionHead, lanes: Sequence[Lane], *, after: int, until: int
) -> AsyncGenerator[list[Envelope], None]:
    """What was trimmed away of a session, in whosever name it is read."""
    async with aclosing(past.pages(holder, lanes, after, until)) as pages:
        try:
            async for page in pages:
                if envelopes := merge(head, page.entries, page.until):
                    yield envelopes
        except CursorTrimmed as gap:
            raise CursorTrimmed(head.session, gap.cursor, gap.first_kept) from None


async def _end(task: asyncio.Task[object]) -> None:
    """Stop what was asked for ahead and is not wanted any more, whatever it came to."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that nobody is told of it


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
