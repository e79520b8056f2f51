"""`mcp_tools`: connect to an MCP server and use its tools, each an `McpTool`. Imports the SDK only to connect."""

from collections.abc import AsyncGenerator, Collection, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, overload

import anyio
from pydantic import JsonValue

from lanebus import ToolCallBlock, ToolResultMessage
from lanebus.agent import ToolContext
from lanebus.errors import InvalidContent, MissingExtra
from lanebus.handlers.integrations.bounds import DEFAULT_MCP_BOUNDS, McpBounds
from lanebus.handlers.integrations.mcp.definition import (
    Catalog,
    Definition,
    Hints,
    McpServer,
    McpToolMissing,
    ProgressReporter,
    reporting,
    result_message,
)
from lanebus.integration import (
    failed,
    require_all,
    require_choice,
    require_flag,
    require_seconds,
    require_text,
    unknown,
    without_secrets,
)
from lanebus.providers import ToolSpec

if TYPE_CHECKING:
    from mcp import types

    from lanebus.handlers.integrations.mcp.connection import CallFailed, McpCaller


# A tool of an MCP server, for an agent.

KEY = "lanebus/key"
"""Key in a call's `_meta` for an id that all attempts of the call share. MCP itself defines no idempotency key."""

_CHANGED = (
    "Not run: the server changed the definition of this tool after the call was allowed. Call the tool again: a person "
    "is then asked"
)


class Trust(NamedTuple):
    """Whether to trust a server's claims about its tools, and when to ask a person; see `mcp_tools`."""

    hints: bool = False
    approve_destructive: bool = False
    on_unknown: Literal["tell", "ask"] = "tell"


class _Caller(Protocol):
    @property
    def bounds(self) -> McpBounds: ...

    async def wait_ready(self) -> "CallFailed | None": ...

    async def call(
        self, name: str, arguments: dict[str, JsonValue], meta: dict[str, JsonValue], on_progress: ProgressReporter
    ) -> "types.CallToolResult | CallFailed": ...


class McpTool:
    """A tool of an MCP server. Its name, description and schema are those that were accepted."""

    is_sequential = False
    """Calls may run concurrently. A server that cannot run calls concurrently queues them."""

    def __init__(
        self, server_name: str, catalog: Catalog, caller: _Caller, *, trust: Trust, seconds: float | None
    ) -> None:
        """Use `mcp_tools` instead."""
        self._server_name, self._catalog, self._caller = server_name, catalog, caller
        self._trust, self._seconds = trust, seconds

    @property
    def definition(self) -> Definition:
        """The accepted definition of the tool; without a change, the server's last definition."""
        return self._catalog[self._server_name]

    @property
    def is_changed(self) -> bool:
        """Whether the server has changed the tool's definition since it was accepted. Until `accept`, each call needs a
        person's approval, and the model sees the accepted definition."""
        return self._catalog.is_held(self._server_name)

    @property
    def newest(self) -> Definition:
        """The server's last definition of the tool, accepted or not. Read it before you `accept` it."""
        return self._catalog.newest(self._server_name)

    def accept(self) -> None:
        """Accept the server's last definition of the tool."""
        self._catalog.accept(self._server_name)

    @property
    def spec(self) -> ToolSpec:
        """Name, description and schema for the model."""
        return self.definition.spec

    @property
    def name(self) -> str:
        """Name for the model, with the prefix."""
        return self.definition.spec.name

    @property
    def title(self) -> str | None:
        """Name for people; None if the server gives none."""
        return self.definition.title

    @property
    def hints(self) -> Hints:
        """The server's claims about the tool's effects, trusted or not."""
        return self.definition.hints

    @property
    def idempotent(self) -> bool:
        """Whether to repeat a call that may have run: true if the server is trusted and declares repeats safe."""
        return self._trust.hints and not self.is_changed and self.hints.is_repeatable

    @property
    def on_unknown(self) -> Literal["tell", "ask"]:
        """What to do if it is unknown whether a call ran: tell the model, or ask a person."""
        return self._trust.on_unknown

    @property
    def timeout(self) -> float | None:
        """Seconds after which the agent may abandon a call. `run` itself stops earlier, with a better message."""
        return None if self._seconds is None else self._seconds + self._caller.bounds.grace_seconds

    def approval(self, call: ToolCallBlock) -> bool:
        """Whether a person must approve the call: always if `is_changed`. Otherwise approval is not needed if a trusted
        server declares the tool harmless."""
        del call
        if self.is_changed:
            return True
        return self._trust.approve_destructive and (not self._trust.hints or self.hints.is_destructive)

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Call the tool and return its result. Every failure is returned as a result that is marked as an error.

        Cancelling the call sends a cancellation to the server. This takes up to five seconds if the server does not
        read.

        Args:
            call: the call of the model.
            context: the context of the call; its `progress` publishes the progress that the server reports.
        """
        if call.arguments_raw is not None:
            return failed(call, f"Invalid arguments: not JSON: {call.arguments_raw[:200]}")
        arguments = {} if call.arguments is None else call.arguments
        if not isinstance(arguments, dict):
            return failed(call, "Invalid arguments: not an object")
        outcome: types.CallToolResult | CallFailed | None = None
        is_sent, approved = False, self.newest.digest
        with anyio.move_on_after(self._seconds):
            outcome = await self._caller.wait_ready()
            if self.is_changed and self.newest.digest != approved:  # a new connection brings a new list
                return failed(call, _CHANGED)
            if outcome is None:
                is_sent = True
                async with reporting(context.progress, pause=self._caller.bounds.progress_pause_seconds) as reporter:
                    outcome = await self._caller.call(
                        self._server_name, arguments, {KEY: _definition_key(context)}, reporter
                    )
        if outcome is None:
            late = f"answer came from the MCP server within {self._seconds:g} s"
            return unknown(call, f"no {late}") if is_sent else failed(call, f"No {late}. The tool did not run.")
        if isinstance(outcome, tuple):
            return unknown(call, outcome.text) if outcome.is_unknown else failed(call, outcome.text)
        try:
            return result_message(call, outcome, self._caller.bounds.result_characters)
        except InvalidContent as error:
            return failed(call, f"The tool ran, but its answer cannot be recorded: {without_secrets(str(error))}")


def _definition_key(context: ToolContext) -> str:
    """Return an id that all attempts of one call share, and no other call has."""
    return str(getattr(context, "key", None) or f"{context.turn_id}.{context.call_id}")


# `mcp_tools`: connect to an MCP server and use its tools.


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
    try:
        from lanebus.handlers.integrations.mcp.connection import McpCaller  # noqa: PLC0415  # imports an extra that is slow to import
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
