"""The event stream of a session."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameters import AFTER, KINDS, flag, lanes, parse_cursor
from lanebus.handlers.ui.stream import EventStream, session_frames

__all__ = ("ENDPOINTS",)


_LANES = lanes(
    "Lanes to send: `extension`, `llm`, both with a comma, or `all` that the token allows.", default="extension"
)
_LIVE = flag("live", "Whether to send live deltas. They belong to the LLM lane.", default=True)


async def events(api: ApiContext, request: Request) -> Response:
    """Stream the session as server-sent events after `Last-Event-ID`, else after `?after=`, else from its start.

    Without `lanes`, the extension lane is sent. `kinds` selects kinds of messages, and `live=false` leaves live deltas
    out. The frames of the stream itself, such as `caughtup`, are always sent.
    """
    session = api.session(request)
    last = request.headers.get("last-event-id")
    after = parse_cursor(last) if last else AFTER.of(request)
    chosen, kinds, live = _LANES.of(request), KINDS.of(request), _LIVE.of(request)
    allowed, asked = await api.gate.require_lanes(request, "read.events", session.id, chosen)
    return EventStream(
        lambda share: session_frames(
            session, after, share, api.history, lanes=allowed, kinds=kinds, live=live, bounds=api.bounds
        ),
        closing=api.closing,
        budget=api.budget,
        bounds=api.bounds,
        access=api.gate.stream(request, asked),
    )


ENDPOINTS = (
    ApiEndpoint(
        path="/api/sessions/{session}/events",
        handler=events,
        parameters=(AFTER, _LANES, KINDS, _LIVE),
        headers={"Last-Event-ID": "cursor after which to start; it comes before `after`"},
        media_types=("text/event-stream",),
    ),
)
