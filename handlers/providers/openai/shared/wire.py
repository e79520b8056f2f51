"""Names and limits of both OpenAI APIs."""

from typing import Literal

from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.wire_ids import WireNames, WirePattern

__all__ = ("PLACEHOLDER", "PROVIDER", "TOOL_NAME", "Api", "tool_choice")

PROVIDER = "openai"
"""One name for both APIs: ids and thinking are valid in either."""

Api = Literal["chat", "responses"]

TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 64)

PLACEHOLDER = "..."
"""The user's text if the context is empty: a request needs a message."""


def tool_choice(target: Target, names: WireNames, *, nested: bool) -> Json:
    """Return the key `tool_choice`; empty if no choice is made or no tool is offered.

    Args:
        target: the options of the request.
        names: names of the tools on the wire.
        nested: put the tool's name into an object `function`, as Chat Completions requires.
    """
    choice = target.tool_choice
    if choice is None or not target.tools:
        return {}
    if choice.mode != "named":
        return {"tool_choice": choice.mode}
    named: Json = {"name": names.of(choice.name or "")}
    return {"tool_choice": {"type": "function", "function": named} if nested else {"type": "function", **named}}
