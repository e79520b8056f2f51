"""Calls of an MCP server's tools, over a connection of our own or a session of the user's. Imports the SDK."""

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
from pydantic import JsonValue

from lanebus.handlers.agent.errors import DuplicateTool
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.mcp.connection import McpConnection
from lanebus.handlers.mcp.definition import Catalog
from lanebus.handlers.mcp.errors import McpUnavailable
from lanebus.handlers.mcp.progress import Teller
from lanebus.handlers.mcp.tool_list import list_tools, reason_of

if TYPE_CHECKING:
    from lanebus.handlers.mcp.server import McpServer

__all__ = ("CallFailed", "McpCaller")

NOT_RUN = "the tool did not run"

_log = logging.getLogger(__name__)


class CallFailed(NamedTuple):
    """A call without a result."""

    text: str
    """for the model"""


class McpCaller:
    """A server whose tools can be listed and called, side by side."""

    def __init__(
        self,
        server: "McpServer",
        tasks: TaskGroup,
        catalog: Catalog,
        *,
        connect_seconds: float,
        bounds: McpBounds = DEFAULT_MCP_BOUNDS,
    ) -> None:
        """
        Args:
            tasks: where connections live; before its end `close` must have been awaited.
            catalog: kept up to date with what the server lists.
        """
        self.label = _label(server)
        self._catalog, self._seconds, self._is_listed = catalog, connect_seconds, False
        self.bounds = bounds
        self._session = server if isinstance(server, ClientSession) else None
        self._connection: McpConnection | None = None
        if not isinstance(server, ClientSession):
            make = (lambda: _client(server)) if isinstance(server, str | StdioServerParameters) else server
            self._connection = McpConnection(
                make, tasks, self._take, label=self.label, seconds=connect_seconds, bounds=bounds
            )

    @property
    def instructions(self) -> str | None:
        """What the server wants a model to know of its tools."""
        asked = self._session or (self._connection and self._connection.client)
        return asked.instructions if asked else None

    async def refresh(self) -> None:
        """Ask for the tools.

        Raises:
            DuplicateTool: two have the same name, in the first list. Of a later one the list before it stays.
            McpUnavailable: there is no server, or it does not answer.
        """
        if self._connection is not None:
            self._connection.doubt()
            await self._connection.get()
        elif self._session is not None:
            try:
                with anyio.fail_after(self._seconds):
                    listed = await list_tools(self._session, self.bounds.pages)
            except Exception as error:
                raise McpUnavailable(self.label, reason_of(error)) from error
            self._take(listed)

    async def wait_ready(self) -> CallFailed | None:
        """Wait until there is a good connection; gives why there is none."""
        if self._connection is None:
            return None
        try:
            await self._connection.get()
        except McpUnavailable as error:
            _log.warning("%s", error)
            return CallFailed(f"The MCP server is not available; {NOT_RUN}.")
        return None

    async def call(
        self, name: str, arguments: dict[str, JsonValue], meta: dict[str, JsonValue], on_progress: Teller
    ) -> types.CallToolResult | CallFailed:
        """Call a tool once, where `wait_ready` found nothing against it. Cancelled, it tells the server so.

        Args:
            name: the server's.
            meta: goes along as `_meta`.
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
        finally:  # also where it was cancelled
            if not is_answered:
                connection.doubt()
        return outcome

    async def _call(
        self,
        name: str,
        arguments: dict[str, JsonValue],
        meta: dict[str, JsonValue],
        on_progress: Teller,
        client: Client | None,
    ) -> types.CallToolResult | CallFailed:
        given = cast("types.RequestParamsMeta", meta)
        try:
            if client is not None:
                return await client.call_tool(name, arguments, progress_callback=on_progress, meta=given)
            assert self._session is not None  # noqa: S101  # there is one or the other
            answer = await self._session.call_tool(
                name, arguments, progress_callback=on_progress, meta=given, allow_input_required=True
            )
        except MCPError as error:
            return CallFailed(_told(error))
        except Exception as error:  # noqa: BLE001  # of the SDK and its HTTP client: none may end the turn
            _log.warning("the MCP server %s: the call of %r failed", self.label, name, exc_info=True)
            reason = reason_of(error)[:500]
            return CallFailed(f"The tool's answer cannot be used: {reason}. The tool may have taken effect.")
        return CallFailed(_refused(answer)) if isinstance(answer, types.InputRequiredResult) else answer

    async def close(self) -> None:
        """Let go of the connection; a session of the user's is left as it is."""
        if self._connection is not None:
            await self._connection.close()

    def _take(self, listed: Sequence[types.Tool]) -> None:
        try:
            if self._catalog.replace(listed):
                _log.info("the MCP server %s has tools: %s", self.label, ", ".join(self._catalog))
        except DuplicateTool as error:
            if not self._is_listed:
                raise
            _log.warning("the MCP server %s: %s; its last list stays", self.label, error)
        self._is_listed = True


def _client(server: str | StdioServerParameters) -> Client:
    own = "0"
    with suppress(PackageNotFoundError):  # not installed, but run where it lies
        own = version("lanebus")
    # Without the SDK's cache: the tools are listed where a new list is wanted.
    return Client(server, client_info=types.Implementation(name="lanebus", version=own), cache=None)


def _label(server: "McpServer") -> str:
    """What to call a server in logs and errors. Users, queries and arguments may be secret, and are left out."""
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


def _told(error: MCPError) -> str:
    """A protocol error, for the model."""
    data = cast("JsonValue", error.data)
    details = "" if data in (None, "") else f" {json.dumps(data, ensure_ascii=False)[:2_000]}"
    lost = ". It is unknown whether the tool took effect." if error.code == types.CONNECTION_CLOSED else ""
    return f"MCP error {error.code}: {error.message}{details}{lost}"


def _refused(answer: types.InputRequiredResult) -> str:
    asked = sorted({request.method for request in (answer.input_requests or {}).values()})
    return f"The tool asks for what is not offered here: {', '.join(asked) or 'to be called again'}"
