"""Stored entries of a session, and the media that they refer to."""

import json
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Session, SessionHead, common_position, media_of
from lanebus.bus.errors import BusError, LogRolledBack, MediaDamaged, MediaMissing, SessionErased
from lanebus.bus.messages import Lane, LlmMessage, sniff
from lanebus.bus.wire import START, Cursor, Envelope
from lanebus.handlers.serve.api.bodies import EntriesAnswer
from lanebus.handlers.serve.api.endpoint import (
    AFTER,
    BEFORE,
    KINDS,
    LIMIT,
    UNTIL,
    ApiContext,
    ApiEndpoint,
    lanes,
    moment,
)
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.gate import SessionRight
from lanebus.handlers.serve.guard import identified
from lanebus.handlers.serve.replies import AccessDenied, envelope_json, refuse
from lanebus.handlers.serve.transfer import History, PacedResponse, PacedWhole

_LANES = lanes("Lanes to read: `llm`, `extension`, both with a comma, or `all` that the token allows.", default="all")
_SINCE = moment("since", "Start at the first entry that was appended at this time or later.")
_BEFORE_TIME = moment("beforeTime", "End before the first entry that was appended at this time or later.")


async def entries(api: ApiContext, request: Request) -> Response:
    """Return `{"entries": [envelope, …], "cursor": …, "more": …, "previous": …}`: the entries of a range, in order.

    `after` and `until` limit the range by position, `since` and `beforeTime` by the time of the append, `lanes` and
    `kinds` by content. `before` with `limit` reads backwards: the answer's `previous` is the next value of `before`.

    An answer covers at most `UiBounds.page_entries` positions and about `UiBounds.answer_bytes`. If `more` is true, the
    client requests the rest with `after` and the answer's cursor. 503 if other answers take all memory.
    """
    session = api.session(request)
    allowed, _ = await api.gate.require_lanes(request, "read.entries", session.id, _LANES.of(request))
    wanted = EntriesQuery(
        allowed,
        KINDS.of(request),
        AFTER.of(request),
        UNTIL.of(request),
        BEFORE.of(request),
        LIMIT.of(request),
        _SINCE.of(request),
        _BEFORE_TIME.of(request),
    )
    right, is_valid = api.gate.right(request, session.id), identified(request.scope).is_valid
    return PacedResponse(
        lambda share: entries_json(
            session, wanted, share, api.history, right=right, is_valid=is_valid, bounds=api.bounds
        ),
        closing=api.closing,
        budget=api.budget,
        bounds=api.bounds,
    )


async def media(api: ApiContext, request: Request) -> Response:
    """Return stored media that the entry at `position` refers to, by their SHA-256. 404 if it refers to none such.

    Media over `UiBounds.media_bytes` are refused with 413.
    """
    session = api.session(request)
    await api.gate.require(request, "read.media", session=session.id, lanes=(Lane.LLM,))
    position, sha256 = int(request.path_params["position"]), str(request.path_params["sha256"])

    async def made(share: Share) -> Response:
        return await stored_media(session, position, sha256, share=share, history=api.history, bounds=api.bounds)

    return PacedWhole(
        made,
        closing=api.closing,
        budget=api.budget,
        bounds=api.bounds,
    )


ENDPOINTS = (
    ApiEndpoint(
        path="/api/sessions/{session}/entries",
        handler=entries,
        parameters=(AFTER, UNTIL, BEFORE, LIMIT, _SINCE, _BEFORE_TIME, _LANES, KINDS),
        answer=EntriesAnswer,
    ),
    ApiEndpoint(
        path="/api/sessions/{session}/entries/{position:int}/media/{sha256}",
        handler=media,
        media_types=("application/octet-stream", "image/png", "image/jpeg", "image/gif", "image/webp"),
        errors=(413, 500),
    ),
)


# Find the positions that a request for entries means: from a cursor, before a position, or by time.


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


async def entries_json(
    session: Session,
    query: EntriesQuery,
    share: Share,
    history: History,
    *,
    right: SessionRight | None,
    is_valid: Callable[[], bool] = lambda: True,
    bounds: UiBounds,
) -> AsyncGenerator[bytes]:
    """Yield the parts of the answer `{"entries": […], "cursor": …, "more": …, "previous": …}`.

    Args:
        session: the session.
        query: the entries to return.
        share: holds the memory of a part while it is sent.
        history: reads the entries.
        right: the client's right to the session; None means that it lasts as long as the token.
        is_valid: returns whether the token is valid. If not, the answer ends with `more`.
        bounds: limits of the answer.

    Raises:
        AccessDenied: as for BusError, if the right has ended.
        LogRolledBack: the log does not reach the cursor, or has lost its entry.
        BusError: the first entries cannot be read. If later ones cannot, the answer ends before them with `more`, and
            the next request gets the error.
        ServerBusy, TooManyWaiting: as for `Turns.turn`.
    """
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session.id)
    # The reader of an empty range checks no cursor. A client whose cursor is beyond the end would wait for nothing.
    found = head.common_position(query.after)
    async with history.reads.turn(share.owner):  # a search by time reads whole entries
        if found is None and query.after.position >= head.position:
            found = await common_position(session.resources.log, head, query.after, session.resources.archive)
        if found is not None and found < query.after.position:
            raise LogRolledBack(session.id, query.after.position, found)
        after, last, end, previous = await find_range(session, head, query, limit=bounds.page_entries)
    cursor, size = after, 0
    pieces = history.pieces(
        session,
        after,
        last,
        share,
        _entry_json,
        lanes=query.lanes,
        kinds=query.kinds,
        seconds=bounds.wait_seconds,
        right=right,
    )
    opened = b'{"entries":['
    async with aclosing(pieces):
        while size < bounds.answer_bytes and is_valid():
            try:
                piece = await anext(pieces, None)
            except (BusError, AccessDenied):
                if not size and cursor == after:
                    raise
                break
            if piece is None:
                break
            rendered, cursor = piece
            if not rendered:
                continue
            yield opened
            size, opened = size + sum(map(len, rendered)), b","
            joined = b",".join(rendered)
            rendered.clear()
            yield joined
            del joined, piece
    rest = json.dumps({"cursor": str(cursor), "more": cursor.position < end, "previous": previous})
    yield (b"" if size else opened) + b"]," + rest[1:].encode()


def _entry_json(envelope: Envelope) -> bytes:
    return envelope_json(envelope).encode()


# Serve stored media of a session. A client gets only media that an entry of the session refers to.
#
# The client names the entry. So the check reads one position of the session, whatever the length of its log, and a
# client that may read one session cannot read the media of another by their SHA-256.

_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""the types that a browser may show; other media are sent as bytes of no type"""


async def refers_to_media(session: Session, position: int, sha256: str) -> bool:
    """Return whether the entry at a position of a session refers to stored media.

    Reads only the session's head and this position, so the cost does not depend on the length of the session.
    Entries of the extension lane and undecodable entries refer to none. Entries that a fork shares are its own too.

    Args:
        session: the session.
        position: position of the entry, from 1.
        sha256: SHA-256 of the media.

    Raises:
        StreamError: the entry cannot be read: it was trimmed, or the session was erased.
        Unavailable: the server or the archive cannot be reached.
    """
    head = await session.head()
    if head.is_erased:
        raise SessionErased(session.id)
    if not 1 <= position <= head.position:
        return False
    async with aclosing(session.read(lanes=(Lane.LLM,), after=Cursor(position - 1), until=position)) as envelopes:
        async for envelope in envelopes:
            if isinstance(message := envelope.message, LlmMessage):
                return any(media.kind == "sha256" and media.sha256 == sha256 for media in media_of(message))
    return False


async def stored_media(
    session: Session, position: int, sha256: str, *, share: Share, history: History, bounds: UiBounds
) -> Response:
    """Return a response with stored media to which the entry at a position refers.

    Browsers save the media, or show them as a picture of a page. They never render them as a page.

    Args:
        session: the session.
        position: position of the entry, from 1.
        sha256: SHA-256 of the media.
        share: holds the memory of the media while they are sent.
        history: gives the turn to read the entry.
        bounds: limits. Media over `UiBounds.media_bytes` are refused with 413 before they are read.

    Raises:
        HTTPException: 404, if the entry does not refer to the media, or the media are not stored.
        StreamError: as for `refers_to_media`.
        Unavailable: the server, the archive or the media store cannot be reached.
        SetupError: the media store refused access.
        ServerBusy: the memory was not free in time, or the turn to read did not come.
    """
    async with history.reads.turn(share.owner):
        if not await refers_to_media(session, position, sha256):
            raise HTTPException(404)
    head = await session.media.head(sha256)
    if head is None:
        raise HTTPException(404)
    size, limit = head.size_bytes, bounds.media_bytes
    if size > limit:
        return refuse(413, "media_too_large", f"media of {size} bytes: at most {limit} are served")
    await share.take(size, seconds=bounds.wait_seconds)
    try:
        data = await session.media.get(sha256)
    except MediaMissing:
        raise HTTPException(404) from None
    except MediaDamaged as error:
        return refuse(500, "media_damaged", str(error))
    media_type = sniff(data)
    return Response(
        data,
        headers={"Content-Disposition": "attachment"},
        media_type=media_type if media_type in _PICTURES else "application/octet-stream",
    )
