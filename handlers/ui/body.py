"""Request bodies: JSON alone, and never more of it than the limit in memory."""

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bus.messages.reading import parse_json

__all__ = ("BODY_LIMIT", "read_json")

BODY_LIMIT = 1_000_000
"""bytes"""


async def read_json(request: Request, *, limit_bytes: int = BODY_LIMIT) -> JsonValue:
    """The body as JSON, read piece by piece: an endless one is cut at the limit.

    Raises:
        HTTPException: 415, it is not said to be JSON (a form of another site cannot say so); 413, it is over the limit.
        DecodeError: it is no JSON that the bus takes.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, "JSON only")
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > limit_bytes:
        raise HTTPException(413, "Body too large")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise HTTPException(413, "Body too large")
    return parse_json(bytes(body))
