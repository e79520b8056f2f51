"""Names and limits that are the same in both OpenAI APIs."""

from typing import Literal

from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.common.target import Target
from lanebus.handlers.providers.common.wire_ids import WireNames, WirePattern

__all__ = ("PLACEHOLDER", "PROVIDER", "TOOL_NAME", "Api", "tool_choice")

PROVIDER = "openai"
"""Name of the provider in messages, the same for both APIs: ids and thinking of one API are valid in the other."""

Api = Literal["chat", "responses"]

TOOL_NAME = WirePattern.of("a-zA-Z0-9_-", 64)

PLACEHOLDER = "..."
"""Text of the user message that is sent if the context is empty, because a request needs a message."""


def tool_choice(target: Target, names: WireNames, *, nested: bool) -> Json:
    """Return an object with the key `tool_choice`. It is empty if there is no tool choice or no tool is offered.

    Args:
        target: the options of the request.
        names: names of the tools on the wire.
        nested: whether the tool's name is put into an object `function`, as Chat Completions requires.
    """
    choice = target.tool_choice
    if choice is None or not target.tools:
        return {}
    if choice.mode != "named":
        return {"tool_choice": choice.mode}
    named: Json = {"name": names.of(choice.name or "")}
    return {"tool_choice": {"type": "function", "function": named} if nested else {"type": "function", **named}}
