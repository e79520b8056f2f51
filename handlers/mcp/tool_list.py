"""The list of a server's tools, and being told when it changes. Imports the SDK."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio
from mcp import Client, ClientSession, MCPError, types
from mcp.client.subscriptions import SubscriptionLost
from pydantic import ValidationError

from lanebus.bus.servers.backoff import Backoff
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds

if TYPE_CHECKING:
    from mcp.client.session import MessageHandlerFnT

__all__ = ("ListFollower", "Take", "list_tools", "reason_of")

Take = Callable[[Sequence[types.Tool]], None]
"""Told the server's tools whenever they were listed. It raises nothing once they were listed before."""

_log = logging.getLogger(__name__)


class ListFollower:
    """Asks a server for its tools whenever it says that they changed."""

    def __init__(self, take: Take, *, label: str, seconds: float, bounds: McpBounds = DEFAULT_MCP_BOUNDS) -> None:
        """
        Args:
            seconds: that a list may take.
        """
        self._take, self._label, self._seconds, self._bounds = take, label, seconds, bounds
        self._changed = anyio.Event()

    def heard(self, then: "MessageHandlerFnT | None") -> "MessageHandlerFnT":
        """What hears the server's notifications before `then` does: servers of the older protocols tell unasked."""

        async def hear(message: types.ServerNotification | Exception) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._changed.set()
            if then is not None:
                await then(message)

        return hear

    async def run(self, client: Client, doubt: Callable[[], None]) -> None:
        """Follow the list until cancelled.

        Args:
            doubt: called where the server did not answer.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, client)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                try:
                    with anyio.fail_after(self._seconds):
                        listed = await list_tools(client.session, self._bounds.pages)
                except Exception:  # noqa: BLE001  # the next call finds out whether the server is there
                    _log.warning("the MCP server %s did not say which tools it has now", self._label, exc_info=True)
                    doubt()
                else:
                    self._take(listed)

    async def _listen(self, client: Client) -> None:
        """Ask a server of the newer protocol to tell of changes, and again where the stream of them ends."""
        backoff = Backoff(self._bounds.listen_pause, self._bounds.listen_most)
        tools = client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                with suppress(SubscriptionLost, TimeoutError):
                    async with client.listen(tools_list_changed=True) as events:
                        async for _ in events:
                            self._changed.set()
            except (RuntimeError, MCPError) as error:  # it is an older one, or will not
                _log.debug("the MCP server %s tells of no changes: %s", self._label, error)
                return
            await backoff.wait()
            self._changed.set()  # what changed meanwhile was told to nobody


async def list_tools(session: ClientSession, pages: int) -> list[types.Tool]:
    """All pages of a server's list, if there are no more than `pages`.

    Raises:
        MCPError: the server refuses, or the connection is lost.
        ValueError: the list has no end.
        pydantic.ValidationError: it is malformed.
    """
    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(pages):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += page.tools
        if not (cursor := page.next_cursor):
            return tools
    raise ValueError(f"the list of its tools has over {pages} pages")


def reason_of(error: BaseException) -> str:
    """The error in short; of a group, the first one in it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults[:3])
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
