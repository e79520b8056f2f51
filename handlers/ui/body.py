"""Request bodies: JSON alone, and never more of it than the limit in memory."""

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bus.messages.reading import parse_json

__all__ = ("BODY_LIMIT", "read_json")

BODY_LIMIT = 1_000_000
"""bytes"""

DROPPED_LIMIT = 16 * BODY_LIMIT


async def read_json(request: Request, *, limit_bytes: int = BODY_LIMIT) -> JsonValue:
    """The body as JSON, read piece by piece: an endless one is cut at the limit.

    Raises:
        HTTPException: 415, it is not said to be JSON (a form of another site cannot say so); 413, it is over the limit.
        DecodeError: it is no JSON that the bus takes.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, "JSON only")
    announced = int(request.headers.get("content-length", "0"))
    if announced > limit_bytes:
        raise _too_large(will_end=announced <= DROPPED_LIMIT)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise _too_large(will_end=False)
    return parse_json(bytes(body))


def _too_large(*, will_end: bool) -> HTTPException:
    # A kept connection has the server take and drop the rest, without end if there is none. A closed one ends that, but
    # a client that is still sending may lose the answer with it, so a body that soon ends by itself is let in.
    return HTTPException(413, "Body too large", headers=None if will_end else {"Connection": "close"})
