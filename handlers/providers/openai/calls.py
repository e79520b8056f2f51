"""Tool calls on OpenAI's wires: their names and their arguments, which are a text of JSON."""

import json

from bus.messages.content import ToolCallBlock
from handlers.providers.wire_ids import WireNames

__all__ = ("arguments_text", "sent_name")


def arguments_text(call: ToolCallBlock, losses: list[str]) -> str:
    """The arguments as the text of a JSON object. Text of the model's that did not parse goes back as it came."""
    if call.arguments_raw and not call.arguments:
        return call.arguments_raw
    arguments = {} if call.arguments is None else call.arguments
    if not isinstance(arguments, dict):
        losses.append(f"arguments of tool call {call.id!r} are no object, sent as {{'value': …}}")
        arguments = {"value": arguments}
    return json.dumps(arguments, ensure_ascii=False)


def sent_name(call: ToolCallBlock, names: WireNames, losses: list[str]) -> str:
    """What the called tool is called on the wire."""
    name = names.of(call.name)
    if name != call.name:
        losses.append(f"tool name {call.name!r} sent as {name!r}")
    return name
