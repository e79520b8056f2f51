"""The arguments of tool calls in OpenAI's APIs, which are JSON text."""

import json

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.json_reader import parse_json
from lanebus.handlers.providers.common.blocks import arguments_of

__all__ = ("arguments_text",)


def arguments_text(call: ToolCallBlock, losses: list[str]) -> str:
    """Return the arguments as the text of a JSON object.

    Text of the model's that did not parse goes back unchanged. That is reported as a loss, as servers may refuse it.
    """
    if not call.arguments_raw or call.arguments:
        return json.dumps(arguments_of(call, losses), ensure_ascii=False)
    try:
        is_object = isinstance(parse_json(call.arguments_raw), dict)
    except DecodeError:
        is_object = False
    if not is_object:
        losses.append(f"arguments of tool call {call.id!r} are no JSON object, sent as they came")
    return call.arguments_raw
