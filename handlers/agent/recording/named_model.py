"""Models and tools that the recorder does not call itself: their names and descriptions."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal

from lanebus.bus.errors import require_text
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.errors import RecorderMisused
from lanebus.handlers.agent.models.model import Model, ModelRequest
from lanebus.handlers.agent.set_up import check_model, check_tools
from lanebus.handlers.agent.tools.tool import Tool, ToolContext
from lanebus.handlers.providers.common.answer import ModelEvent
from lanebus.handlers.providers.common.tools import ToolSpec

__all__ = ("NamedModel", "NamedTool", "as_model", "as_tools")


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A `Model` that only names a model: the user's own loop calls the model, and `stream` raises an error."""

    provider: str
    name: str
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Raise RecorderMisused: the recorder calls no model."""
        del request
        raise RecorderMisused(f"the recorder does not call the model {self.name}")
        yield  # makes this function an async generator, like the `stream` of every model


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A `Tool` that only describes a tool: the user's own loop runs the tool, and `run` raises an error.

    A call that was started and left no result is not run again.
    """

    spec: ToolSpec
    idempotent: bool = False
    on_unknown: Literal["tell", "ask"] = "tell"
    timeout: float | None = None
    is_sequential: bool = False

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.spec.name

    def approval(self, call: ToolCallBlock) -> bool:
        """Return False: the user's loop asks a person with `RecordedTurn.approval`."""
        del call
        return False

    async def run(self, call: ToolCallBlock, context: ToolContext) -> ToolResultMessage:
        """Raise RecorderMisused: the recorder runs no tool."""
        del context
        raise RecorderMisused(f"the recorder does not run the tool {call.name}")


def as_model(model: Model | str, provider: str) -> Model:
    """Return `model`; for a name, return a `NamedModel` with that name and `provider`."""
    require_text("provider", provider)
    if not isinstance(model, str):
        check_model(model)
    return NamedModel(provider, model) if isinstance(model, str) else model


def as_tools(tools: Sequence[Tool | ToolSpec]) -> dict[str, Tool]:
    """Return the tools by their names."""
    check_tools(tools, (ToolSpec,))
    return {tool.name: NamedTool(tool) if isinstance(tool, ToolSpec) else tool for tool in tools}
