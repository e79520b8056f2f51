"""The names and limits that hold for both of OpenAI's APIs."""

from typing import Literal

from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.wire_ids import WireNames, WirePattern

__all__ = ("PLACEHOLDER", "PROVIDER", "TOOL_NAME", "Api", "tool_choice")

PROVIDER = "openai"
"""One name for both: ids and thinking are OpenAI's, whichever API they came by."""

Api = Literal["chat", "responses"]

TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 64)

PLACEHOLDER = "..."
"""said by the user where nobody has said anything: a request may not be empty"""


def tool_choice(target: Target, names: WireNames, *, nested: bool) -> Json:
    """The key `tool_choice`, or nothing where it is not said or no tool is offered.

    Args:
        nested: a tool's name stands in an object `function`, as in Chat Completions.
    """
    choice = target.tool_choice
    if choice is None or not target.tools:
        return {}
    if choice.mode != "named":
        return {"tool_choice": choice.mode}
    named: Json = {"name": names.of(choice.name or "")}
    return {"tool_choice": {"type": "function", "function": named} if nested else {"type": "function", **named}}
