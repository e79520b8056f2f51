"""Call the tools of an MCP server, over a connection that lanebus opens or a session that the user opened. Imports the
SDK."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import urlsplit

import anyio
from anyio.abc import TaskGroup
from mcp import Client, ClientSession, MCPError, StdioServerParameters, types
from mcp.client import Transport
from pydantic import JsonValue

from lanebus.bus.error_text import logged, without_secrets
from lanebus.handlers.agent.errors import DuplicateTool
from lanebus.handlers.mcp.bounded_http import bounded_http
from lanebus.handlers.mcp.bounded_lines import bounded_encoding
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.mcp.connection import McpConnection
from lanebus.handlers.mcp.definition import Catalog
from lanebus.handlers.mcp.errors import McpUnavailable
from lanebus.handlers.mcp.progress import ProgressReporter
from lanebus.handlers.mcp.tool_list import list_tools, reason_of

if TYPE_CHECKING:
    from lanebus.handlers.mcp.server import McpServer

__all__ = ("CallFailed", "McpCaller")

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
        self.label = _label(server)
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
    return Client(_bounded(server, bounds), client_info=types.Implementation(name="lanebus", version=own), cache=None)


def _bounded(server: str | StdioServerParameters, bounds: McpBounds) -> StdioServerParameters | Transport:
    """Return a server whose messages are bounded."""
    if isinstance(server, StdioServerParameters):
        return server.model_copy(update={"encoding": bounded_encoding(server.encoding, bounds.message_bytes)})
    return bounded_http(server, bounds.message_bytes)


def _label(server: "McpServer") -> str:
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
