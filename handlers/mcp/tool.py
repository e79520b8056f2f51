"""A tool of an MCP server, for an agent."""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import anyio
from pydantic import JsonValue

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import InvalidContent
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.tools.tool import ToolContext
from lanebus.handlers.agent.tools.tool_reply import failed, unknown
from lanebus.handlers.mcp.bounds import McpBounds
from lanebus.handlers.mcp.definition import Catalog, Definition, Hints
from lanebus.handlers.mcp.progress import ProgressReporter, reporting
from lanebus.handlers.mcp.results import result_message
from lanebus.handlers.providers.common.tools import ToolSpec

if TYPE_CHECKING:
    from mcp import types

    from lanebus.handlers.mcp.caller import CallFailed

__all__ = ("KEY", "McpTool", "Trust")

KEY = "lanebus/key"
"""Key in a call's `_meta` for an id that all attempts of the call share. MCP itself defines no idempotency key."""


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
        is_sent = False
        with anyio.move_on_after(self._seconds):
            outcome = await self._caller.wait_ready()
            if outcome is None:
                is_sent = True
                async with reporting(context.progress, pause=self._caller.bounds.progress_pause_seconds) as reporter:
                    outcome = await self._caller.call(self._server_name, arguments, {KEY: _key(context)}, reporter)
        if outcome is None:
            late = f"answer came from the MCP server within {self._seconds:g} s"
            return unknown(call, f"no {late}") if is_sent else failed(call, f"No {late}. The tool did not run.")
        if isinstance(outcome, tuple):
            return unknown(call, outcome.text) if outcome.is_unknown else failed(call, outcome.text)
        try:
            return result_message(call, outcome, self._caller.bounds.result_characters)
        except InvalidContent as error:
            return failed(call, f"The tool ran, but its answer cannot be recorded: {without_secrets(str(error))}")


def _key(context: ToolContext) -> str:
    """Return an id that all attempts of one call share, and no other call has."""
    return str(getattr(context, "key", None) or f"{context.turn_id}.{context.call_id}")
