"""Call the tools of an MCP server, over a connection that lanebus opens or a session that the user opened.

Connections stop reading an answer or a line that is too large. Imports the SDK, which is slow to import.
"""

import codecs
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from pydantic import JsonValue

from lanebus.agent import DuplicateTool
from lanebus.errors import DecodeError, InvalidArgument
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.integrations.mcp.connection import McpConnection, list_tools, reason_of
from lanebus.handlers.integrations.mcp.definition import Catalog, McpUnavailable
from lanebus.handlers.integrations.mcp.results import ProgressReporter
from lanebus.integration import logged, require_few_values, without_secrets

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from lanebus.handlers.integrations.mcp.definition import McpServer


NOT_RUN = "the tool did not run"

_UNANSWERED = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""codes of errors that the SDK reports in place of the server's answer"""

_log = logging.getLogger(__name__)


class CallFailed(NamedTuple):
    """A call that returned no result."""

    text: str
    """the reason, for the model"""
    is_unknown: bool = False
    """whether the tool may have run; `text` is then the cause for `unknown`"""


class McpCaller:
    """Lists and calls the tools of one server. Calls may run concurrently."""

    def __init__(
        self,
        server: "McpServer",
        tasks: TaskGroup,
        catalog: Catalog,
        *,
        connect_seconds: float,
        bounds: McpBounds = DEFAULT_MCP_BOUNDS,
    ) -> None:
        """Store the server. `refresh` or the first call connects.

        Args:
            server: see `McpServer`.
            tasks: task group for connections. Await `close` before the group ends.
            catalog: receives each list of tools from the server.
            connect_seconds: time limit for one attempt to connect and list the tools.
            bounds: limits and periods.
        """
        self.label = _server_label(server)
        self._catalog, self._seconds, self._is_listed = catalog, connect_seconds, False
        self.bounds = bounds
        self._session = server if isinstance(server, ClientSession) else None
        self._connection: McpConnection | None = None
        if not isinstance(server, ClientSession):
            make = (lambda: _client(server, bounds)) if isinstance(server, str | StdioServerParameters) else server
            self._connection = McpConnection(
                make, tasks, self._take, label=self.label, seconds=connect_seconds, bounds=bounds
            )

    @property
    def instructions(self) -> str | None:
        """The server's instructions for the model; None if the server has none or is not connected."""
        client = self._session or (self._connection and self._connection.client)
        return client.instructions if client else None

    async def refresh(self) -> None:
        """Ask the server for its tools, and update the catalog.

        Raises:
            DuplicateTool: two tools of the first list have the same name. A later list with duplicates is ignored.
            McpUnavailable: the server cannot be reached, or does not answer.
        """
        if self._connection is not None:
            self._connection.doubt()
            await self._connection.get()
        elif self._session is not None:
            try:
                with anyio.fail_after(self._seconds):
                    listed = await list_tools(self._session, self.bounds)
            except Exception as error:
                raise McpUnavailable(self.label, reason_of(error)) from error
            self._take(listed)

    async def wait_ready(self) -> CallFailed | None:
        """Wait until the connection works. Return the failure if the server cannot be reached, else None."""
        if self._connection is None:
            return None
        try:
            await self._connection.get()
        except McpUnavailable as error:
            _log.warning("%s", error)
            return CallFailed(f"The MCP server is not available; {NOT_RUN}.")
        return None

    async def call(
        self, name: str, arguments: dict[str, JsonValue], meta: dict[str, JsonValue], on_progress: ProgressReporter
    ) -> types.CallToolResult | CallFailed:
        """Call a tool once. Await `wait_ready` first. Cancelling the call sends a cancellation to the server.

        Args:
            name: the server's name of the tool.
            arguments: the arguments of the call.
            meta: data to send as `_meta`.
            on_progress: receives the server's progress notifications.
        """
        connection = self._connection
        if connection is None:
            return await self._call(name, arguments, meta, on_progress, None)
        client = connection.client
        if client is None:
            return CallFailed(f"The connection to the MCP server was lost; {NOT_RUN}.")
        is_answered = False
        try:
            with connection.calling():
                outcome = await self._call(name, arguments, meta, on_progress, client)
            is_answered = isinstance(outcome, types.CallToolResult)
        finally:  # also if the call is cancelled
            if not is_answered:
                connection.doubt()
        return outcome

    async def _call(
        self,
        name: str,
        arguments: dict[str, JsonValue],
        meta: dict[str, JsonValue],
        on_progress: ProgressReporter,
        client: Client | None,
    ) -> types.CallToolResult | CallFailed:
        typed_meta = cast("types.RequestParamsMeta", meta)
        try:
            if client is not None:
                return await client.call_tool(name, arguments, progress_callback=on_progress, meta=typed_meta)
            assert self._session is not None  # noqa: S101  # either a client or a session is set
            answer = await self._session.call_tool(
                name, arguments, progress_callback=on_progress, meta=typed_meta, allow_input_required=True
            )
        except MCPError as error:
            text = _error_text(error)
            if error.code in _UNANSWERED:
                return CallFailed(f"the server's answer was lost: {text}", is_unknown=True)
            return CallFailed(text)
        except Exception as error:  # noqa: BLE001  # no error of the SDK or its HTTP client may end the turn
            _log.warning("the MCP server %s: the call of %r failed", self.label, name, exc_info=logged(error))
            reason = reason_of(error)[:500]
            return CallFailed(f"the server's answer cannot be used: {reason}", is_unknown=True)
        return CallFailed(_refusal_text(answer)) if isinstance(answer, types.InputRequiredResult) else answer

    async def close(self) -> None:
        """Close the connection. A session that the user opened stays open."""
        if self._connection is not None:
            await self._connection.close()

    def _take(self, listed: Sequence[types.Tool]) -> None:
        try:
            if self._catalog.replace(listed):
                _log.info("the MCP server %s has tools: %s", self.label, ", ".join(self._catalog))
        except DuplicateTool as error:
            if not self._is_listed:
                raise
            _log.warning("the MCP server %s: %s; its previous list of tools is kept", self.label, error)
        self._is_listed = True


def _client(server: str | StdioServerParameters, bounds: McpBounds) -> Client:
    own = "0"
    with suppress(PackageNotFoundError):  # run from a checkout that is not installed
        own = version("lanebus")
    # Turn off the SDK's cache, which would answer with an old list of tools.
    return Client(
        _bounded_server(server, bounds), client_info=types.Implementation(name="lanebus", version=own), cache=None
    )


def _bounded_server(server: str | StdioServerParameters, bounds: McpBounds) -> StdioServerParameters | Transport:
    """Return a server whose messages are bounded."""
    if isinstance(server, StdioServerParameters):
        return server.model_copy(update={"encoding": bounded_encoding(server.encoding, bounds.message_bytes)})
    return bounded_http(server, bounds.message_bytes)


def _server_label(server: "McpServer") -> str:
    """Return the server's name for logs and errors, without its parts that may be secret: user names, queries and
    arguments."""
    match server:
        case str():
            try:
                parts = urlsplit(server)
            except ValueError:
                return "of a malformed address"
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        case StdioServerParameters():
            return repr(PurePath(server.command).name)
        case ClientSession():
            return repr(server.server_info.name if server.server_info else "of a session")
        case _:
            return "of a client"


def _error_text(error: MCPError) -> str:
    """Describe a protocol error for the model."""
    data = cast("JsonValue", error.data)
    details = "" if data in (None, "") else f" {json.dumps(data, ensure_ascii=False)[:2_000]}"
    return without_secrets(f"MCP error {error.code}: {error.message}{details}")


def _refusal_text(answer: types.InputRequiredResult) -> str:
    methods = sorted({request.method for request in (answer.input_requests or {}).values()})
    return f"The tool asks for what is not offered here: {', '.join(methods) or 'to be called again'}"


# Stop reading an answer over HTTP that is too large.
#
# The SDK bounds the events of a stream itself. An answer of another type it reads as a whole, whatever its size.


class _AnswerTooLarge(httpx2.StreamError):
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
            raise _AnswerTooLarge("the server compressed its answer, which it was asked not to do")
        if self._limit is None:  # the events of a stream, which the SDK bounds
            async for chunk in self._body:
                yield chunk
            return
        answer = bytearray()  # as a whole, because the SDK parses it as a whole
        async for chunk in self._body:
            answer += chunk
            if len(answer) > self._limit:
                raise _AnswerTooLarge(f"the server's answer is over the limit of {self._limit} bytes")
        try:
            require_few_values(bytes(answer))
        except DecodeError as fault:
            raise _AnswerTooLarge(f"the server's answer has {fault}") from None
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
    return _bounded_transport(url, limit, httpx2.Timeout(timeout, read=read_timeout))


def _bounded_transport(
    url: str, limit: int, timeouts: httpx2.Timeout
) -> "AbstractAsyncContextManager[TransportStreams]":
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


# Drop lines of a server process that are too large.
#
# The SDK keeps all of a line in memory, whatever its length, and decodes the bytes of a server process with the
# encoding that its parameters name. An encoding is the only place where the line can be cut before the SDK joins its
# pieces.

_ENCODING_NAME = re.compile(r"lanebus_lines_(\d+)_(.+)")
_REQUEST_ID = re.compile(r'"id"\s{0,3}:\s{0,3}(\d{1,18}|"[^"\\]{1,100}")')


class _BoundedLines(codecs.IncrementalDecoder):
    """Replaces each line of more than `limit` characters, or of too many values, by an error that answers the same
    request."""

    def __init__(self, decoder: codecs.IncrementalDecoder, limit: int, ends: int = 256) -> None:
        """
        Args:
            decoder: decodes the bytes.
            limit: maximum number of characters of a line.
            ends: how many characters of the beginning and the end of a long line are searched for the request's id.
        """
        super().__init__(decoder.errors)
        self._decoder, self._limit, self._ends = decoder, limit, ends
        self._pieces: list[str] = []
        self._size = 0
        self._tail = ""

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        """Return the lines that are complete."""
        text = self._decoder.decode(data, final)
        *complete, rest = text.split("\n")
        lines: list[str] = []
        for line in complete:
            self._add(line)
            lines.append(f"{self._take()}\n")
        self._add(rest)
        return "".join(lines)

    def reset(self) -> None:
        """See `codecs.IncrementalDecoder`."""
        self._decoder.reset()
        self._take()

    def _add(self, piece: str) -> None:
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > self._limit:
            self._tail = (self._tail + piece)[-self._ends :]
            self._pieces = ["".join(self._pieces)[: self._ends]]

    def _take(self) -> str:
        line, text = "".join(self._pieces), None
        if self._size > self._limit:
            text = f"the server's answer is over the limit of {self._limit} bytes"
        else:
            self._tail = line[-self._ends :]
            try:
                require_few_values(line)
            except DecodeError as fault:
                text = f"the server's answer has {fault}"
        if text is not None:
            found = _REQUEST_ID.search(line[: self._ends]) or _REQUEST_ID.search(self._tail)
            error = {"code": -32603, "message": text}  # JSON-RPC: internal error
            line = json.dumps({"jsonrpc": "2.0", "id": json.loads(found[1]) if found else None, "error": error})
        self._pieces, self._size, self._tail = [], 0, ""
        return line


def bounded_encoding(encoding: str, limit: int) -> str:
    """Return the name of an encoding like `encoding`, whose lines have at most `limit` characters.

    Raises:
        InvalidArgument: there is no such encoding.
    """
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidArgument("encoding", encoding, "pass the name of an encoding, such as utf-8") from None
    name = f"lanebus_lines_{limit}_{encoding}"
    try:
        codecs.lookup(name)
    except LookupError:
        codecs.register(_find_encoding)
    return name


def _find_encoding(name: str) -> codecs.CodecInfo | None:
    match = _ENCODING_NAME.fullmatch(name)
    if match is None:
        return None
    limit, inner = int(match[1]), codecs.lookup(match[2])
    make = codecs.getincrementaldecoder(match[2])

    class Decoder(_BoundedLines):
        def __init__(self, errors: str = "strict") -> None:
            super().__init__(make(errors), limit)

    return codecs.CodecInfo(inner.encode, inner.decode, name=name, incrementaldecoder=Decoder)
