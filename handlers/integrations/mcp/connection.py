"""A connection to an MCP server that is opened again after it was lost, its list of tools, and calls of them.

The tools are listed again when they change. Imports the SDK, which is slow to import.

Connections stop reading an answer or a line that is too large. Imports the SDK, which is slow to import.
"""

from __future__ import annotations

import codecs
import json
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup, TaskStatus
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client import Transport
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from pydantic import JsonValue, ValidationError

from lanebus.agent import DuplicateTool
from lanebus.errors import DecodeError, InvalidArgument
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.integrations.mcp.definition import Catalog, McpUnavailable, ProgressReporter
from lanebus.integration import Backoff, describe_error, logged, require_few_values, without_secrets

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.client.session import MessageHandlerFnT

    from lanebus.handlers.integrations.mcp.definition import McpServer


# List a server's tools, and list the tools again when they change. Imports the SDK.

Take = Callable[[Sequence[types.Tool]], None]
"""A function that receives each list of the server's tools. It may raise only for the first list."""

_log = logging.getLogger(__name__)


class ListFollower:
    """Lists a server's tools whenever the server notifies of a change."""

    def __init__(self, take: Take, *, label: str, seconds: float, bounds: McpBounds = DEFAULT_MCP_BOUNDS) -> None:
        """Store the receiver of lists.

        Args:
            take: receives each list.
            label: name of the server in logs.
            seconds: time limit for listing the tools.
            bounds: limits and periods.
        """
        self._take, self._label, self._seconds, self._bounds = take, label, seconds, bounds
        self._changed = anyio.Event()

    def handler(self, then: MessageHandlerFnT | None) -> MessageHandlerFnT:
        """Return a message handler for the SDK's client. It passes each message on to `then`.

        After a change notification, `run` lists the tools again. Only servers with older protocol versions send these
        notifications to the handler; `run` subscribes to those of other servers.
        """

        async def handle(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed.set()
            if then is not None:
                await then(message)

        return handle

    async def run(self, client: Client, doubt: Callable[[], None]) -> None:
        """Wait for change notifications until cancelled, and list the tools after each.

        Args:
            client: the connected client.
            doubt: called if the server does not answer.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, client)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                try:
                    with anyio.fail_after(self._seconds):
                        listed = await list_tools(client.session, self._bounds)
                except Exception as error:  # noqa: BLE001  # the next call checks whether the server still answers
                    _log.warning(
                        "the MCP server %s did not list its changed tools", self._label, exc_info=logged(error)
                    )
                    doubt()
                else:
                    self._take(listed)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes on servers with the newer protocol, and again whenever the subscription ends."""
        backoff = Backoff(self._bounds.stream_pause_seconds, self._bounds.longest_stream_pause_seconds)
        tools = client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                with suppress(SubscriptionLost, TimeoutError):
                    async with client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            self._changed.set()
            except (RuntimeError, MCPError) as error:  # the server has an older protocol, or refuses to listen
                _log.debug("the MCP server %s sends no change notifications: %s", self._label, error)
                return
            await backoff.wait()
            self._changed.set()  # changes during the pause were not received


async def list_tools(session: ClientSession, bounds: McpBounds) -> list[types.Tool]:
    """Return a server's whole list of tools.

    Args:
        session: the session with the server.
        bounds: limits of the list.

    Raises:
        MCPError: the server refused, or the connection was lost.
        ValueError: the list has more than `pages` pages, or more than `tools` tools.
        pydantic.ValidationError: the list is malformed.
    """
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(bounds.pages):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        if len(tools) > bounds.tools:
            raise ValueError(f"the list of its tools has over {bounds.tools} tools")
        if not (cursor := page.next_cursor):
            return tools
    raise ValueError(f"the list of its tools has over {bounds.pages} pages")


def reason_of(error: BaseException) -> str:
    """Describe an error in one line; for an exception group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return without_secrets("; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3]))
    return describe_error(error)


# A separate task opens and closes the client. A cancel scope must be left by the task that entered it, and callers may
# be cancelled at any time.


class _OpenClient(NamedTuple):
    client: Client
    release: anyio.Event
    """set to ask the client's task to close the client"""
    closed: anyio.Event


class _Renewal:
    """An attempt to get a working connection. Concurrent callers wait for the same attempt."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.client: Client | None = None
        self.failure: Exception | None = None


class McpConnection:
    """A connection to one server. Calls may run concurrently."""

    def __init__(
        self,
        make: Callable[[], Client],
        tasks: TaskGroup,
        take: Take,
        *,
        label: str,
        seconds: float,
        bounds: McpBounds = DEFAULT_MCP_BOUNDS,
    ) -> None:
        """Store the server. `get` connects.

        Args:
            make: returns a client that is not connected.
            tasks: task group for connections. Await `close` before the group ends.
            take: receives each list of tools from the server.
            label: name of the server in logs and errors.
            seconds: time limit for one attempt to connect and list the tools.
            bounds: limits and periods.
        """
        self._make, self._tasks, self._take = make, tasks, take
        self._label, self._seconds, self._bounds = label, seconds, bounds
        self._open: _OpenClient | None = None
        self._renewal: _Renewal | None = None
        self._is_doubted = False
        self._answered = 0.0
        """time of the server's last answer, by the event loop's clock"""
        self._calls = 0
        self._quiet: tuple[float, str] = (0.0, "")
        """time until which no attempt to connect is made, and the reason of the last failure"""
        self._list = ListFollower(take, label=label, seconds=seconds, bounds=bounds)
        self._is_closed = False

    @property
    def client(self) -> Client | None:
        """The connected client, or None."""
        return self._open.client if self._open else None

    def doubt(self) -> None:
        """Make the next `get` check whether the server still answers."""
        self._is_doubted = True

    @contextmanager
    def calling(self) -> Generator[None, None, None]:
        """Count a call as running during the block. While calls run, a server that does not answer counts as busy, not
        as lost."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._answered = anyio.current_time()

    async def get(self) -> Client:
        """Return a connected client: the current client if it works, else a new one.

        If the call is cancelled, the attempt to connect continues for other callers.

        Raises:
            DuplicateTool: two tools of the server's first list have the same name.
            McpUnavailable: the server cannot be reached.
        """
        is_idle = anyio.current_time() - self._answered > self._bounds.idle_seconds and not self._calls
        if self._open is not None and not self._is_doubted and not is_idle and self._renewal is None:
            return self._open.client
        renewal = self._renewal
        if renewal is None and not self._is_closed:
            # In a separate task: callers with short time limits would otherwise never find out that the server hangs.
            renewal = self._renewal = _Renewal()
            self._tasks.start_soon(self._renew, renewal)
        if renewal is not None:
            await renewal.done.wait()
            if renewal.client is not None:
                return renewal.client
            if renewal.failure is not None:
                raise renewal.failure
        raise McpUnavailable(self._label, "it was closed")

    async def _renew(self, renewal: _Renewal) -> None:
        """Check the current connection, and reconnect if needed."""
        try:
            if self._open is not None and not await self._still_answers(self._open.client):
                _log.info("the MCP server %s does not answer; connecting again", self._label)
                await self._drop()
            renewal.client = (self._open or await self._connect()).client
        except Exception as error:  # noqa: BLE001  # raised to the waiting callers
            renewal.failure = error
        finally:
            self._renewal = None
            renewal.done.set()

    async def close(self) -> None:
        """Close the connection for good. A server process that the client started ends."""
        self._is_closed = True
        with anyio.move_on_after(self._bounds.close_seconds, shield=True):
            await self._drop()

    async def _still_answers(self, client: Client) -> bool:
        """Request the tool list, store the list, and return whether the server answered.

        The request for the list is used because every MCP version has it. While calls are running, a timeout counts as
        an answer.
        """
        try:
            with anyio.fail_after(self._seconds):
                listed = await list_tools(client.session, self._bounds)
        except TimeoutError:
            return self._calls > 0
        except Exception:  # noqa: BLE001  # of the SDK and its HTTP client
            return False
        self._is_doubted, self._answered = False, anyio.current_time()
        self._take(listed)
        return True

    async def _connect(self) -> _OpenClient:
        until, reason = self._quiet
        if anyio.current_time() < until:
            raise McpUnavailable(self._label, reason)
        cause: Exception | None = None
        backoff = Backoff(self._bounds.first_pause_seconds, factor=4.0, jitter=0.5)
        for attempt in range(self._bounds.attempts):
            if attempt:
                await backoff.wait()
            try:
                with anyio.fail_after(self._seconds):
                    opened, listed = cast(
                        "tuple[_OpenClient, Sequence[types.Tool]]", await self._tasks.start(self._hold, name="mcp")
                    )
            except Exception as error:  # noqa: BLE001  # of the system, the SDK and its HTTP client
                cause = error
                _log.debug("the MCP server %s: no connection", self._label, exc_info=logged(error))
                continue
            self._is_doubted, self._answered = False, anyio.current_time()
            self._take(listed)
            return opened
        reason = reason_of(cause) if cause else ""
        self._quiet = anyio.current_time() + self._bounds.quiet_seconds, reason
        raise McpUnavailable(self._label, reason) from cause

    async def _hold(self, *, task_status: TaskStatus[tuple[_OpenClient, Sequence[types.Tool]]]) -> None:
        """Open a connection, and keep it open until the connection breaks or `release` is set."""
        opened: _OpenClient | None = None
        client = self._make()
        client.message_handler = self._list.handler(client.message_handler)
        try:
            async with client:
                listed = await list_tools(client.session, self._bounds)
                opened = self._open = _OpenClient(client, anyio.Event(), anyio.Event())
                task_status.started((opened, listed))
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._list.run, client, self.doubt)
                    await opened.release.wait()
                    tasks.cancel_scope.cancel()
        except Exception as error:
            if opened is None:
                raise  # raised in `_connect`, which waits for `started`
            _log.info("the MCP server %s: the connection broke: %s", self._label, reason_of(error))
        finally:
            if opened is not None:
                opened.closed.set()
                if self._open is opened:
                    self._open = None

    async def _drop(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.release.set()
            await opened.closed.wait()


# Call the tools of an MCP server, over a connection that lanebus opens or a session that the user opened.


NOT_RUN = "the tool did not run"

_UNANSWERED = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT})
"""codes of errors that the SDK reports in place of the server's answer"""


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
        server: McpServer,
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


def _server_label(server: McpServer) -> str:
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


def bounded_http(url: str, limit: int, *, timeout: float = 30.0, read_timeout: float = 300.0) -> Transport:
    """Return a transport for the SDK's client whose answers have at most `limit` bytes each.

    Args:
        url: address of the server.
        limit: maximum size of a JSON answer, or of one event of a stream, in bytes.
        timeout: time limit in seconds for connecting and sending. The default is the SDK's.
        read_timeout: time limit in seconds for each read. The default is the SDK's.
    """
    return _bounded_transport(url, limit, httpx2.Timeout(timeout, read=read_timeout))


def _bounded_transport(url: str, limit: int, timeouts: httpx2.Timeout) -> AbstractAsyncContextManager[TransportStreams]:
    async def bound(response: httpx2.Response) -> None:
        is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        encoding = response.headers.get("content-encoding", "identity").lower()
        body = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _BoundedStream(body, None if is_stream else limit, is_encoded=encoding != "identity")

    @asynccontextmanager
    async def connect() -> AsyncGenerator[TransportStreams, None]:
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
