"""Read a session's log as pages of envelopes, including a fork's shared entries and the archive."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import anyio

from lanebus.bus.errors import CursorTrimmed, EntriesMissing, LogRolledBack, SessionErased
from lanebus.bus.log.archive_reader import ArchiveReader
from lanebus.bus.log.first_page import FirstPage
from lanebus.bus.log.head import SessionHead
from lanebus.bus.log.incarnations import common_position, cursor_at
from lanebus.bus.log.lineage import Part, lineage
from lanebus.bus.log.log import Log
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.reading.gaps import Gap, find_gap, has_all, lane_of, last_own
from lanebus.bus.reading.merge import cut, merge
from lanebus.bus.reading.page_size import Pager
from lanebus.bus.reading.pages import LanePages, fetch_page, has_later, size_of
from lanebus.bus.wire.codec import Entry
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.selection import Selection

__all__ = ("Page", "read_pages")


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
