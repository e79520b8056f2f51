"""A connection to an MCP server over HTTP that stops reading an answer that is too large. Imports the SDK.

The SDK bounds the events of a stream itself. An answer of another type it reads as a whole, whatever its size.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.json_parser import require_few_values

if TYPE_CHECKING:
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams

__all__ = ("bounded_http",)


class _TooLarge(httpx2.StreamError):
    """The SDK turns this error into an answer that fails the request."""


class _BoundedStream(httpx2.AsyncByteStream):
    """The body of a response, up to a number of bytes."""

    def __init__(self, body: httpx2.AsyncByteStream, limit: int | None, *, is_encoded: bool) -> None:
        """
        Args:
            limit: maximum number of bytes; None means no limit.
            is_encoded: whether the body is compressed. It is then refused, because its size is not known.
        """
        self._body, self._limit, self._is_encoded = body, limit, is_encoded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._is_encoded:
            raise _TooLarge("the server compressed its answer, which it was asked not to do")
        if self._limit is None:  # the events of a stream, which the SDK bounds
            async for chunk in self._body:
                yield chunk
            return
        answer = bytearray()  # as a whole, because the SDK parses it as a whole
        async for chunk in self._body:
            answer += chunk
            if len(answer) > self._limit:
                raise _TooLarge(f"the server's answer is over the limit of {self._limit} bytes")
        try:
            require_few_values(bytes(answer))
        except DecodeError as fault:
            raise _TooLarge(f"the server's answer has {fault}") from None
        yield bytes(answer)

    async def aclose(self) -> None:
        """See `httpx2.AsyncByteStream`."""
        await self._body.aclose()


def bounded_http(url: str, limit: int, *, timeout: float = 30.0, read_timeout: float = 300.0) -> "Transport":
    """Return a transport for the SDK's client whose answers have at most `limit` bytes each.

    Args:
        url: address of the server.
        limit: maximum size of a JSON answer, or of one event of a stream, in bytes.
        timeout: time limit in seconds for connecting and sending. The default is the SDK's.
        read_timeout: time limit in seconds for each read. The default is the SDK's.
    """
    return _transport(url, limit, httpx2.Timeout(timeout, read=read_timeout))


def _transport(url: str, limit: int, timeouts: httpx2.Timeout) -> "AbstractAsyncContextManager[TransportStreams]":
    async def bound(response: httpx2.Response) -> None:
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        encoding = response.headers.get("content-encoding", "identity").lower()
        body = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _BoundedStream(body, None if is_stream else limit, is_encoded=encoding != "identity")

    @asynccontextmanager
    async def connect() -> "AsyncGenerator[TransportStreams, None]":
        headers = {"Accept-Encoding": "identity"}
        async with (
            httpx2.AsyncClient(timeout=timeouts, headers=headers, event_hooks={"response": [bound]}) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=limit) as streams,
        ):
            yield streams

    return connect()
