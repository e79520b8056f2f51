"""Serve MCP clients over HTTP, as a part of the page's server, or one client over the streams of this process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from lanebus.bus import Bus, first_error
from lanebus.bus.messages import require_few_values
from lanebus.handlers.protocols import MessageLines, ProtocolFiles, message_lines
from lanebus.handlers.serve.access.credentials import Identified, Principal
from lanebus.handlers.serve.api.endpoint import ApiContext
from lanebus.handlers.serve.bounds import DEFAULT_MCP_SERVER_BOUNDS, DEFAULT_UI_BOUNDS, McpServerBounds, UiBounds
from lanebus.handlers.serve.budget import Share, Turns
from lanebus.handlers.serve.guard import owner_of
from lanebus.handlers.serve.mcp.server import ApiCalls, Caller, McpSessions
from lanebus.handlers.serve.replies import refuse
from lanebus.handlers.serve.server import create_app
from lanebus.handlers.serve.transfer import PacedWhole, give_back, read_body


class McpHosted:
    """The server for MCP clients under `/mcp`. No session is kept: each request is answered by itself.

    The tools call the API with the token of the request, so a client can do what its token allows.
    """

    path = "/mcp"

    def __init__(self, *, allow_publish: bool = False, bounds: McpServerBounds = DEFAULT_MCP_SERVER_BOUNDS) -> None:
        """
        Args:
            allow_publish: whether to offer the tool that sends messages. The token must allow it too.
            bounds: sizes of messages and answers.
        """
        self._allow_publish, self._bounds = allow_publish, bounds
        self._accepts: _Accepts | None = None

    @asynccontextmanager
    async def run(self, page: Starlette) -> AsyncGenerator[None]:
        """Accept requests in the block. Enter it once.

        Args:
            page: the application of the page.
        """
        api, bounds = cast("ApiContext", page.state.api), self._bounds
        most = min(bounds.line_bytes, api.bounds.body_bytes)
        calls = ApiCalls(
            page,
            read_bytes=bounds.read_bytes,
            small_bytes=bounds.small_bytes,
            held_bytes=min(bounds.read_bytes, api.bounds.memory_bytes // 2),
            seconds=api.bounds.wait_seconds,
        )
        sessions = McpSessions(calls, _caller, allow_publish=self._allow_publish, bounds=bounds)
        manager = StreamableHTTPSessionManager(
            app=sessions.server(), json_response=True, stateless=True, max_request_body_size=most
        )
        async with manager.run():
            self._accepts = _Accepts(manager, api, bounds, most)
            try:
                yield
            finally:
                self._accepts = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, within `request_seconds`. Without `run`, the answer is 503.

        Raises:
            RequestRefused: the body is too large, or came too slowly.
            DecodeError: the body has too many values.
            ServerBusy, TooManyWaiting: the server has no memory or no turn for the request.
        """
        answer = _late() if self._accepts is None else await self._accepts.answer(scope, receive)
        try:
            await answer(scope, receive, send)
        finally:
            give_back(scope)


class _Accepts:
    """Answers requests while the server runs. What a request holds is part of the memory of the page's server."""

    def __init__(
        self, manager: StreamableHTTPSessionManager, api: ApiContext, bounds: McpServerBounds, most: int
    ) -> None:
        self._manager, self._api, self._bounds = manager, api, bounds
        self._read = replace(api.bounds, body_bytes=most)
        self._turns = Turns(
            bounds.calls,
            own=max(bounds.calls // 2, 1),
            begun=bounds.calls,
            queued=api.bounds.queued,
            seconds=api.bounds.wait_seconds,
        )

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """Read a request, and return the response to it."""
        api, until = self._api, anyio.current_time() + self._bounds.request_seconds
        body: bytes | None = None
        try:
            with anyio.CancelScope(deadline=until):
                body = await read_body(Request(scope, receive), api.bodies, self._read)
                require_few_values(body)  # the SDK parses with no such limit
        except BaseException:
            give_back(scope)
            raise
        if body is None:
            return _late()
        whole = body

        async def made(share: Share) -> Response:
            with anyio.CancelScope(deadline=until):
                async with self._turns.turn(share.owner):
                    reply = await self._answered(scope, whole, share)
                    if (size := len(reply.body)) > api.bounds.small_bytes:
                        await share.take(size, seconds=api.bounds.wait_seconds)
                    return reply
            return _late()

        return PacedWhole(made, closing=api.closing, budget=api.budget, bounds=api.bounds)

    async def _answered(self, scope: Scope, body: bytes, share: Share) -> Response:
        """Return the answer of the SDK, which is at most a few times `answer_bytes`."""
        found, is_read = Response(), False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                await anyio.sleep_forever()  # the response is cancelled if the client goes
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.status_code, found.raw_headers = message["status"], list(message["headers"])
            else:
                found.body = bytes(found.body) + message.get("body", b"")

        async with self._api.budget.share(share.abort, share, owner=owner_of(scope)) as reading:
            Caller.hold(scope, reading)
            await self._manager.handle_request(scope, receive, keep)
        return found


def _late() -> Response:
    return refuse(503, "unavailable", "the server did not answer in time: try again")


def _caller(context: ServerRequestContext[object, object]) -> Caller:
    request = cast("Request | None", context.request)
    assert request is not None  # noqa: S101  # only for the type checker: this transport always attaches it
    return Caller.of(request.scope)


# Serve one MCP client over the streams of this process.


async def serve_client(
    bus: Bus,
    principal: Principal,
    files: ProtocolFiles,
    *,
    allow_publish: bool = False,
    bounds: McpServerBounds = DEFAULT_MCP_SERVER_BOUNDS,
    ui_bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> None:
    """Answer a client until it closes its end.

    Args:
        bus: the bus.
        principal: what the client may do, and the sender of its messages.
        files: the pipes to the client.
        allow_publish: whether to offer the tool that sends messages. The principal must be allowed to `send`, too.
        bounds: sizes of messages and answers.
        ui_bounds: limits of the API that the tools call.

    Raises:
        SetupError: stdin or stdout is a file.
    """
    app = create_app(bus, allowed_hosts=(), bounds=ui_bounds)
    caller = Caller(Identified(principal), "stdio")
    sessions = McpSessions(
        ApiCalls(app, read_bytes=bounds.read_bytes), lambda _: caller, allow_publish=allow_publish, bounds=bounds
    )
    server = sessions.server()
    try:
        async with message_lines(files, line_bytes=bounds.line_bytes, end_seconds=bounds.end_seconds) as lines:
            incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            answers, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, lines, incoming)
                tasks.start_soon(_write, lines, outgoing)
                await server.run(received, answers, server.create_initialization_options())
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None


async def _read(lines: MessageLines, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with messages:
        while (line := await lines.receive()) is not None:
            try:
                message: SessionMessage | Exception = SessionMessage(
                    jsonrpc_message_adapter.validate_python(line, by_name=False)
                )
            except ValueError as error:
                message = error  # the SDK answers it
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await messages.send(message)


async def _write(lines: MessageLines, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with messages:
        async for each in messages:
            dumped = each.message.model_dump(mode="json", by_alias=True, exclude_unset=True)
            await lines.send(cast("dict[str, JsonValue]", dumped))
