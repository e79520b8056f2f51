"""Request bodies: JSON alone, and never more of it than the limit in memory."""

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds

__all__ = ("read_json",)


async def read_json(request: Request, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> JsonValue:
    """The body as JSON, read piece by piece: an endless one is cut at the limit.

    Raises:
        HTTPException: 415, it is not said to be JSON (a form of another site cannot say so); 413, it is over the limit.
        DecodeError: it is no JSON that the bus takes.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, "JSON only")
    announced = int(request.headers.get("content-length", "0"))
    if announced > bounds.body_bytes:
        raise _too_large(will_end=announced <= bounds.dropped_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bounds.body_bytes:
            raise _too_large(will_end=False)
    return parse_json(bytes(body))


def _too_large(*, will_end: bool) -> HTTPException:
    # A kept connection has the server take and drop the rest, without end if there is none. A closed one ends that, but
    # a client that is still sending may lose the answer with it, so a body that soon ends by itself is let in.
    return HTTPException(413, "Body too large", headers=None if will_end else {"Connection": "close"})
