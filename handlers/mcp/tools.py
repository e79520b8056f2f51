"""`mcp_tools`: connect to an MCP server and use its tools."""

from collections.abc import AsyncGenerator, Collection, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, overload

import anyio

from lanebus.bus.errors import (
    MissingExtra,
    require_all,
    require_choice,
    require_flag,
    require_instance,
    require_seconds,
    require_text,
)
from lanebus.handlers.mcp.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.mcp.definition import Catalog
from lanebus.handlers.mcp.errors import McpToolMissing
from lanebus.handlers.mcp.server import McpServer
from lanebus.handlers.mcp.tool import McpTool, Trust

if TYPE_CHECKING:
    from lanebus.handlers.mcp.caller import McpCaller

__all__ = ("McpTools", "mcp_tools")


class McpTools(Sequence[McpTool]):
    """The tools in a server's current list, in the list's order. The sequence changes when the server's list
    changes."""

    def __init__(self, caller: "McpCaller", catalog: Catalog, *, trust: Trust, seconds: float | None) -> None:
        """Use `mcp_tools` instead."""
        self._caller, self._catalog, self._trust, self._seconds = caller, catalog, trust, seconds
        self._tools: dict[str, McpTool] = {}

    @property
    def instructions(self) -> str | None:
        """The server's instructions for the model. Put them into a system prompt if you trust the server."""
        return self._caller.instructions

    async def refresh(self) -> None:
        """Ask the server for its tools, and update this sequence.

        This is rarely needed: after a change notification, the list is updated automatically. The notifications of a
        session that you passed to `mcp_tools` go to your handlers, so call this method there.

        Raises:
            DuplicateTool: two tools of the first list have the same name. A later list with duplicates is ignored.
            McpUnavailable: the server does not answer.
        """
        await self._caller.refresh()

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
        if name not in self._tools:
            self._tools[name] = McpTool(name, self._catalog, self._caller, trust=self._trust, seconds=self._seconds)
        return self._tools[name]


@asynccontextmanager
async def mcp_tools(
    server: McpServer,
    *,
    prefix: str = "",
    only: Collection[str] | None = None,
    trust_hints: bool = False,
    approve_destructive: bool = False,
    on_unknown: Literal["tell", "ask"] = "tell",
    accepted: MutableMapping[str, str] | None = None,
    call_seconds: float | None = 60.0,
    connect_seconds: float = 30.0,
    bounds: McpBounds = DEFAULT_MCP_BOUNDS,
) -> AsyncGenerator[McpTools, None]:
    """Connect to an MCP server for the duration of an `async with` block, and return its tools.

    If the connection is lost, the result of running calls is an error. The next call connects again.

    Requests of a server to its client (sampling, elicitation, roots) are refused. If a tool needs such a request, the
    tool's result is an error that names the request.

    Args:
        server: see `McpServer`.
        prefix: put before each tool's name, to keep the names of several servers apart.
        only: the server's names of the tools to use. None means all, including tools that the server adds later.
        trust_hints: trust the server's claims about its tools' effects. If a worker dies during a call, a tool that the
            server declares read-only or idempotent is then run again. The claims may be wrong.
        approve_destructive: require a person's approval of each call, unless the server's claims are trusted and say
            that the tool destroys nothing.
        on_unknown: what to do if it is unknown whether a call ran: "tell" the model, or "ask" a person.
        accepted: hashes of the accepted definitions, by the server's names of the tools. A tool without a hash is
            accepted as it is first listed, and its hash is added. If a definition does not match its hash, each call
            needs approval until `McpTool.accept`. Store the mapping, to notice changes between two runs. None notices
            only changes during the block.
        call_seconds: time limit of a call, including a new connection if needed. None means no limit.
        connect_seconds: time limit of one attempt to connect and list the tools.
        bounds: further limits and periods, which rarely need other values.

    Raises:
        DuplicateTool: two tools of the server have the same name.
        McpToolMissing: `only` names a tool that the server does not list.
        McpUnavailable: the server cannot be started or reached.
        MissingExtra: the MCP SDK is not installed.
    """
    require_text("prefix", prefix)
    if only is not None:
        require_all("only", only, str, 'pass a list of names, such as only=["search"]')
    require_flag("trust_hints", trust_hints)
    require_flag("approve_destructive", approve_destructive)
    require_choice("on_unknown", on_unknown, ("tell", "ask"))
    require_seconds("call_seconds", call_seconds, is_positive=True, is_optional=True)
    require_seconds("connect_seconds", connect_seconds, is_positive=True)
    require_instance("bounds", bounds, McpBounds, "pass McpBounds(…)")
    try:
        from lanebus.handlers.mcp.caller import McpCaller  # noqa: PLC0415  # imports an extra that is slow to import
    except ImportError as error:
        if not (error.name or "").startswith("mcp"):
            raise
        raise MissingExtra("mcp>=2", "mcp") from None
    catalog = Catalog(prefix, only, accepted=accepted, bounds=bounds)
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        caller = McpCaller(server, tasks, catalog, connect_seconds=connect_seconds, bounds=bounds)
        try:
            await caller.refresh()
            if catalog.missing:
                raise McpToolMissing(caller.label, catalog.missing)
            trust = Trust(trust_hints, approve_destructive, on_unknown)
            yield McpTools(caller, catalog, trust=trust, seconds=call_seconds)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # raised again below, outside of
            failure = error  # the task group, which would wrap it in an exception group
        finally:
            await caller.close()
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
