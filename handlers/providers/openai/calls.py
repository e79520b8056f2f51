"""The arguments of a tool call on OpenAI's wires, which are a text of JSON."""

import json

from bus.messages.content import ToolCallBlock
from handlers.providers.blocks import arguments_of

__all__ = ("arguments_text",)


def arguments_text(call: ToolCallBlock, losses: list[str]) -> str:
    """The arguments as the text of a JSON object. Text of the model's that did not parse goes back as it came."""
    if call.arguments_raw and not call.arguments:
        return call.arguments_raw
    return json.dumps(arguments_of(call, losses), ensure_ascii=False)
