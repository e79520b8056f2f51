"""Stored entries of a session, and the media that they refer to."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameters import AFTER, LANES, UNTIL
from lanebus.handlers.ui.entries import EntriesQuery, entries_json
from lanebus.handlers.ui.media import stored_media
from lanebus.handlers.ui.paced import PacedResponse, PacedWhole

__all__ = ("ENDPOINTS",)


async def entries(api: ApiContext, request: Request) -> Response:
    """Return `{"entries": [envelope, …], "cursor": …, "more": …}`: the entries after `?after=`, up to and including
    `?until=`. `?lanes=extension` returns one lane.

    An answer has at most `UiBounds.page_entries` and about `UiBounds.answer_bytes`. If `more` is true, the client
    requests the rest with `?after=` and the answer's cursor. 503 if other answers take all memory.
    """
    session = api.session(request)
    after, until, lanes = AFTER.of(request), UNTIL.of(request), LANES.of(request)
    if lanes is None:
        lanes, _ = await api.gate.allowed_lanes(request, "read.entries", session.id)
    else:
        await api.gate.require(request, "read.entries", session=session.id, lanes=lanes)
    wanted = EntriesQuery(after, until, lanes)
    return PacedResponse(
        lambda share: entries_json(session, wanted, share, api.history, api.bounds),
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
    limit = api.bounds.media_bytes
    return PacedWhole(
        lambda: stored_media(session, position, sha256, limit_bytes=limit),
        limit,
        closing=api.closing,
        budget=api.budget,
        bounds=api.bounds,
    )


ENDPOINTS = (
    ApiEndpoint(path="/api/sessions/{session}/entries", handler=entries, parameters=(AFTER, UNTIL, LANES)),
    ApiEndpoint(path="/api/sessions/{session}/entries/{position:int}/media/{sha256}", handler=media),
)
