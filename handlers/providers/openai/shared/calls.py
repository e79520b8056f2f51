"""Write the arguments of tool calls for OpenAI's APIs, which take arguments as JSON text."""

import json

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.json_parser import parse_json
from lanebus.handlers.providers.common.blocks import arguments_of

__all__ = ("arguments_text",)


def arguments_text(call: ToolCallBlock, losses: list[str]) -> str:
    """Return the arguments as the text of a JSON object.

    If the model's arguments were not a JSON object, their text goes back unchanged. This is reported as a loss, because
    servers may refuse such text.
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
