"""A tool of an MCP server, as an agent has it."""

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import anyio
from pydantic import JsonValue, ValidationError

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import ToolResultMessage
from lanebus.handlers.agent.tools.tool import ToolContext, failed
from lanebus.handlers.mcp.bounds import McpBounds
from lanebus.handlers.mcp.definition import Catalog, Definition, Hints
from lanebus.handlers.mcp.progress import Teller, telling
from lanebus.handlers.mcp.results import result_message
from lanebus.handlers.providers.common.tools import ToolSpec

if TYPE_CHECKING:
    from mcp import types

    from lanebus.handlers.mcp.caller import CallFailed

__all__ = ("KEY", "McpTool", "Trust")

KEY = "lanebus/key"
"""In a call's `_meta`: the same for every attempt of it. The protocol has no key of its own for that."""


class Trust(NamedTuple):
    """What is made of what a server says, see `mcp_tools`."""

    hints: bool = False
    approve_destructive: bool = False
    on_unknown: Literal["tell", "ask"] = "tell"


class _Link(Protocol):
    @property
    def bounds(self) -> McpBounds: ...

    async def wait_ready(self) -> "CallFailed | None": ...

    async def call(
        self, name: str, arguments: dict[str, JsonValue], meta: dict[str, JsonValue], on_progress: Teller
    ) -> "types.CallToolResult | CallFailed": ...


class McpTool:
    """A tool of an MCP server. What it is told to be follows what the server lists."""

    is_sequential = False
    """Calls run side by side; a server that cannot do that has them wait."""

    def __init__(self, server_name: str, catalog: Catalog, link: _Link, *, trust: Trust, seconds: float | None) -> None:
        """Made by `mcp_tools`."""
        self._server_name, self._catalog, self._link = server_name, catalog, link
        self._trust, self._seconds = trust, seconds

    @property
    def definition(self) -> Definition:
        """What the server said of it last."""
        return self._catalog[self._server_name]

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return self.definition.spec

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.definition.spec.name

    @property
    def title(self) -> str | None:
        """For people; None if the server gives none."""
        return self.definition.title

    @property
    def hints(self) -> Hints:
        """What the server says of its effects, trusted or not."""
        return self.definition.hints

    @property
    def idempotent(self) -> bool:
        """It may be run again where nobody knows whether it ran: the server says so, and is trusted."""
        return self._trust.hints and self.hints.is_repeatable

    @property
    def on_unknown(self) -> Literal["tell", "ask"]:
        """Who is told of a call that may or may not have run: the model, or a person."""
        return self._trust.on_unknown

    @property
    def timeout(self) -> float | None:
        """Seconds after which a call may be given up by who runs it. It ends before that by itself, and says more."""
        return None if self._seconds is None else self._seconds + self._link.bounds.grace

    def approval(self, call: ToolCallBlock) -> bool:
        """Whether a person has to agree first. That a tool is harmless is believed only of a trusted server."""
        del call
        return self._trust.approve_destructive and (not self._trust.hints or self.hints.is_destructive)

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """The call's result. Whatever goes wrong is a result too, marked as an error.

        Cancelled, it tells the server so, which takes up to five seconds where the server does not read.
        """
        if call.arguments_raw is not None:
            return failed(call, f"Invalid arguments: not JSON: {call.arguments_raw[:200]}")
        arguments = {} if call.arguments is None else call.arguments
        if not isinstance(arguments, dict):
            return failed(call, "Invalid arguments: not an object")
        outcome: types.CallToolResult | CallFailed | None = None
        is_sent = False
        with anyio.move_on_after(self._seconds):
            outcome = await self._link.wait_ready()
            if outcome is None:
                is_sent = True
                async with telling(context.progress, pause=self._link.bounds.progress_pause) as teller:
                    outcome = await self._link.call(self._server_name, arguments, {KEY: _key(context)}, teller)
        if outcome is None:
            effect = "It is unknown whether the tool took effect" if is_sent else "The tool did not run"
            return failed(call, f"No answer from the MCP server within {self._seconds:g} s. {effect}.")
        if isinstance(outcome, tuple):
            return failed(call, outcome.text)
        try:
            return result_message(call, outcome)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            return failed(call, f"The tool ran, but its answer cannot be recorded: {faults[0]['msg']}")


def _key(context: ToolContext) -> str:
    """The same for every attempt of one call, and no other's."""
    return str(getattr(context, "key", None) or f"{context.turn_id}.{context.call_id}")
