"""The event stream of a session."""

from starlette.requests import Request
from starlette.responses import Response

from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameters import AFTER, parse_cursor
from lanebus.handlers.ui.stream import EventStream, session_frames

__all__ = ("ENDPOINTS",)


async def events(api: ApiContext, request: Request) -> Response:
    """Stream the session as server-sent events after `Last-Event-ID`, else after `?after=`, else from its start."""
    session = api.session(request)
    last = request.headers.get("last-event-id")
    after = parse_cursor(last) if last else AFTER.of(request)
    lanes, allowed = await api.gate.allowed_lanes(request, "read.events", session.id)
    return EventStream(
        lambda share: session_frames(session, after, share, api.history, lanes=lanes, bounds=api.bounds),
        closing=api.closing,
        budget=api.budget,
        bounds=api.bounds,
        access=api.gate.stream(request, allowed),
    )


ENDPOINTS = (ApiEndpoint(path="/api/sessions/{session}/events", handler=events, parameters=(AFTER,)),)
