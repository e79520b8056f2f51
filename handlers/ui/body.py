"""Read request bodies: only JSON, and never more than the limit is kept in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.lowlevel
from pydantic import JsonValue
from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from lanebus.bus.digits import number_in
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.ui.auth import owner_of, require_valid
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.budget import ByteBudget, Share
from lanebus.handlers.ui.replies import RequestRefused

__all__ = ("announced_bytes", "body_too_large", "body_too_slow", "give_back", "holding", "read_body", "read_json")

_SHARE = "lanebus.body"


async def read_json(request: Request, budget: ByteBudget, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> JsonValue:
    """Read the body as JSON; see `read_body`.

    The content type must be JSON. This stops forms on other sites, because an HTML form cannot send this type.

    Raises:
        RequestRefused: 415 if the content type is not `application/json`; else as for `read_body`.
        DecodeError: the body is not JSON that the bus accepts.
        ServerBusy: the memory was not free in time.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestRefused(415, "json_only", "send JSON, with the header Content-Type: application/json")
    return parse_json(await read_body(request, budget, bounds))


async def read_body(request: Request, budget: ByteBudget, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> bytes:
    """Read the body chunk by chunk, at most `bounds.body_bytes`. Its memory is held until `give_back`.

    Nothing is read before there is memory for the announced length, or for the longest body if none is announced.

    Raises:
        RequestRefused: 413 if the body is larger than the limit; 408 if it takes longer than `bounds.body_seconds`, or
            stops while other requests wait for memory; 401 if the token has ended meanwhile; 400 as for
            `announced_bytes`.
        ServerBusy: the memory was not free in time.
    """
    announced = announced_bytes(request, unknown=bounds.body_bytes)
    if announced > bounds.body_bytes:
        raise body_too_large(bounds.body_bytes, will_end=announced <= bounds.dropped_bytes)
    async with holding(request, budget, announced, bounds) as (share, timeout):
        body = bytearray()
        async for chunk in request.stream():
            share.blocked_at = anyio.current_time()
            body += chunk
            if len(body) > bounds.body_bytes:
                raise body_too_large(bounds.body_bytes, will_end=False)
    if timeout.cancelled_caught:
        raise body_too_slow(bounds.body_seconds)
    require_valid(request.scope)
    share.keep(len(body) if len(body) > bounds.small_bytes else 0)
    return bytes(body)


@asynccontextmanager
async def holding(
    request: Request, budget: ByteBudget, size: int, bounds: UiBounds
) -> AsyncGenerator[tuple[Share, anyio.CancelScope]]:
    """Hold memory for a request's body, until `give_back`, and bound the time in which the block reads it.

    Args:
        request: the request.
        budget: the memory of the server.
        size: bytes to hold; none are held up to `UiBounds.small_bytes`.
        bounds: sizes and time limits.

    Raises:
        ServerBusy: the memory was not free in time.
    """
    timeout = anyio.CancelScope()
    request.scope[_SHARE] = share = budget.open(timeout.cancel, owner=owner_of(request.scope))
    if size > bounds.small_bytes:
        await share.take(size, seconds=bounds.wait_seconds)
    timeout.deadline = anyio.current_time() + bounds.body_seconds
    with timeout:
        share.blocked_at = anyio.current_time()
        try:
            yield share, timeout
        except ClientDisconnect:
            timeout.cancel()
            await anyio.lowlevel.checkpoint()
        finally:
            share.blocked_at = None


def give_back(scope: Scope) -> None:
    """Give back the memory of a request's body, when the request was handled."""
    if (share := cast("Share | None", scope.pop(_SHARE, None))) is not None:
        share.close()


def announced_bytes(request: Request, *, unknown: int = 0) -> int:
    """Return the size of the body by the header `Content-Length`; `unknown` if there is no such header.

    Raises:
        RequestRefused: 400 if the header is no number. Other servers than lanebus's own may let such a header pass.
    """
    header = request.headers.get("content-length")
    found = unknown if header is None else number_in(header)
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
