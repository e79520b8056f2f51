"""Serve MCP clients over HTTP, as a part of the page's server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from lanebus.handlers.mcp_server.api_calls import ApiCalls, Caller
from lanebus.handlers.mcp_server.bounds import DEFAULT_MCP_SERVER_BOUNDS, McpServerBounds
from lanebus.handlers.mcp_server.server import McpSessions
from lanebus.handlers.ui.replies import refuse

__all__ = ("McpHosted",)


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
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def run(self, page: Starlette) -> AsyncGenerator[None]:
        """Accept requests in the block. Enter it once.

        Args:
            page: the application of the page.
        """
        sessions = McpSessions(
            ApiCalls(page, read_bytes=self._bounds.read_bytes),
            _caller,
            allow_publish=self._allow_publish,
            bounds=self._bounds,
        )
        manager = StreamableHTTPSessionManager(
            app=sessions.server(),
            json_response=True,
            stateless=True,
            max_request_body_size=self._bounds.line_bytes,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, within `request_seconds`. Without `run`, the answer is 503."""
        is_started = False

        async def send_noted(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        if self._manager is not None:
            with anyio.move_on_after(self._bounds.request_seconds):
                await self._manager.handle_request(scope, receive, send_noted)
                return
        if not is_started:
            await refuse(503, "unavailable", "the server did not answer in time: try again")(scope, receive, send)


def _caller(context: ServerRequestContext[object, object]) -> Caller:
    request = cast("Request | None", context.request)
    assert request is not None  # noqa: S101  # only for the type checker: this transport always attaches it
    return Caller.of(request.scope)
