"""List a server's tools, and list the tools again when they change. Imports the SDK."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio
from mcp import Client, ClientSession, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from pydantic import ValidationError

from lanebus.bus.error_text import describe_error, logged, without_secrets
from lanebus.bus.servers.backoff import Backoff
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds

if TYPE_CHECKING:
    from mcp.client.session import MessageHandlerFnT

__all__ = ("ListFollower", "Take", "list_tools", "reason_of")

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

    def handler(self, then: "MessageHandlerFnT | None") -> "MessageHandlerFnT":
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
