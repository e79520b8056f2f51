"""The tools of one MCP server, for the length of a block."""

from collections.abc import AsyncGenerator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, overload

import anyio

from lanebus.handlers.agent.errors import MissingExtra
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.mcp.definition import Catalog
from lanebus.handlers.mcp.errors import McpToolMissing
from lanebus.handlers.mcp.server import McpServer
from lanebus.handlers.mcp.tool import McpTool, Trust

if TYPE_CHECKING:
    from lanebus.handlers.mcp.caller import McpCaller

__all__ = ("McpTools", "mcp_tools")


class McpTools(Sequence[McpTool]):
    """The tools that a server has now, in its order. It follows what the server lists."""

    def __init__(self, link: "McpCaller", catalog: Catalog, *, trust: Trust, seconds: float | None) -> None:
        """Made by `mcp_tools`."""
        self._link, self._catalog, self._trust, self._seconds = link, catalog, trust, seconds
        self._made: dict[str, McpTool] = {}

    @property
    def instructions(self) -> str | None:
        """What the server wants a model to know of its tools. Put it into a system prompt if you trust the server."""
        return self._link.instructions

    async def refresh(self) -> None:
        """Ask the server which tools it has now. Seldom needed: a server that says that they changed is asked at once.

        A session that you brought is asked only here: what it hears is yours.

        Raises:
            DuplicateTool: two have the same name.
            McpUnavailable: the server does not answer.
        """
        await self._link.refresh()

    def __len__(self) -> int:
        return len(tuple(self._catalog))

    def __iter__(self) -> Iterator[McpTool]:
        return (self._tool(name) for name in tuple(self._catalog))

    @overload
    def __getitem__(self, index: int) -> McpTool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[McpTool, ...]: ...
    def __getitem__(self, index: int | slice) -> McpTool | tuple[McpTool, ...]:
        return tuple(self)[index]

    def _tool(self, name: str) -> McpTool:
        if name not in self._made:
            self._made[name] = McpTool(name, self._catalog, self._link, trust=self._trust, seconds=self._seconds)
        return self._made[name]


@asynccontextmanager
async def mcp_tools(
    server: McpServer,
    *,
    prefix: str = "",
    only: Collection[str] | None = None,
    trust_hints: bool = False,
    approve_destructive: bool = False,
    on_unknown: Literal["tell", "ask"] = "tell",
    call_seconds: float | None = 60.0,
    connect_seconds: float = 30.0,
    bounds: McpBounds = DEFAULT_MCP_BOUNDS,
) -> AsyncGenerator[McpTools, None]:
    """The tools of an MCP server. It is connected to for the length of the block, and again where it was lost.

    A call on a lost connection has an error for its result; the next call connects anew. What a server asks of its
    client (sampling, elicitation, roots) is not offered: a server that asks all the same is told so, and where a tool
    cannot go on without it, its result is an error that says what was asked for.

    Args:
        prefix: put before each name, so that tools of several servers have names of their own.
        only: the server's names of the tools that are wanted; None for all that it has, also later.
        trust_hints: believe what the server says of its tools' effects. Then a tool that is said to be read-only or
            idempotent is run again where a worker died during a call. A hint is no promise.
        approve_destructive: a person has to agree to each call, unless the server is trusted and says of the tool
            that it destroys nothing.
        on_unknown: who is told of a call that may or may not have run, the model or a person.
        call_seconds: that a call may take, with a new connection where one is needed; None for no end.
        connect_seconds: that one attempt to connect may take, with the list of the tools.
        bounds: limits and periods that seldom need another value.

    Raises:
        DuplicateTool: two tools of the server have the same name.
        McpToolMissing: the server does not have what `only` names.
        McpUnavailable: the server cannot be started or reached.
        MissingExtra: the SDK is not installed.
    """
    try:
        from lanebus.handlers.mcp.caller import McpCaller  # noqa: PLC0415  # imports an extra that is slow to import
    except ImportError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        raise MissingExtra("mcp>=2", "mcp") from None
    catalog = Catalog(prefix, only)
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        link = McpCaller(server, tasks, catalog, connect_seconds=connect_seconds, bounds=bounds)
        try:
            await link.refresh()
            if catalog.missing:
                raise McpToolMissing(link.label, catalog.missing)
            trust = Trust(trust_hints, approve_destructive, on_unknown)
            yield McpTools(link, catalog, trust=trust, seconds=call_seconds)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised again below, outside of
            failure = error  # the group: it stays what it is, not wrapped in an ExceptionGroup
        finally:
            await link.close()
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
