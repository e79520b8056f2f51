"""Read request bodies: only JSON, and never more than the limit is kept in memory."""

import anyio
from pydantic import JsonValue
from starlette.requests import Request

from lanebus.bus.digits import number_in
from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.replies import RequestRefused

__all__ = ("announced_bytes", "body_too_large", "body_too_slow", "read_json")


async def read_json(request: Request, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> JsonValue:
    """Read the body as JSON, chunk by chunk, at most `bounds.body_bytes`.

    The content type must be JSON. This stops forms on other sites, because an HTML form cannot send this type.

    Raises:
        RequestRefused: 415 if the content type is not `application/json`; 413 if the body is larger than the limit; 408
            if it takes longer than `bounds.body_seconds`; 400 as for `announced_bytes`.
        DecodeError: the body is not JSON that the bus accepts.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestRefused(415, "json_only", "send JSON, with the header Content-Type: application/json")
    announced = announced_bytes(request)
    if announced > bounds.body_bytes:
        raise body_too_large(bounds.body_bytes, will_end=announced <= bounds.dropped_bytes)
    body = bytearray()
    with anyio.move_on_after(bounds.body_seconds) as timeout:
        async for chunk in request.stream():
            body += chunk
            if len(body) > bounds.body_bytes:
                raise body_too_large(bounds.body_bytes, will_end=False)
    if timeout.cancelled_caught:
        raise body_too_slow(bounds.body_seconds)
    return parse_json(bytes(body))


def announced_bytes(request: Request) -> int:
    """Return the size of the body by the header `Content-Length`; 0 if there is no such header.

    Raises:
        RequestRefused: 400 if the header is no number. Other servers than lanebus's own may let such a header pass.
    """
    found = number_in(request.headers.get("content-length", "0"))
    if found is None:
        raise RequestRefused(400, "invalid_length", "the header Content-Length must be the size of the body in bytes")
    return found


def body_too_slow(seconds: float) -> RequestRefused:
    """Return the error of a body that did not arrive within so many seconds. The connection is closed."""
    fault = f"the body did not arrive within {seconds:g} s: send it again"
    return RequestRefused(408, "body_too_slow", fault, headers={"Connection": "close"})


def body_too_large(limit_bytes: int, *, will_end: bool) -> RequestRefused:
    """Return the error of a body over the limit.

    Args:
        limit_bytes: maximum number of bytes.
        will_end: whether the rest of the body is read and dropped. Otherwise the connection is closed.
    """
    # If the connection is kept open, the server reads and drops the rest of the body, forever if the body has no end.
    # Closing the connection avoids this, but a client that is still sending may then miss the response. So a body of
    # known, moderate size is read to its end.
    fault = f"the body has more than {limit_bytes} bytes, which this request may have"
    return RequestRefused(413, "body_too_large", fault, headers=None if will_end else {"Connection": "close"})
