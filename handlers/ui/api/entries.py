"""Stored entries of a session, and the media that they refer to."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.ui.api.answers import EntriesAnswer
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameters import AFTER, BEFORE, KINDS, LIMIT, UNTIL, lanes, moment
from lanebus.handlers.ui.auth import identified
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.entries import entries_json
from lanebus.handlers.ui.entry_range import EntriesQuery
from lanebus.handlers.ui.media import stored_media
from lanebus.handlers.ui.paced import PacedResponse, PacedWhole

__all__ = ("ENDPOINTS",)


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
            *(session, wanted, share, api.history), right=right, is_valid=is_valid, bounds=api.bounds
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
