"""`tools_calls`, in which a graph message repeats its tool calls in the provider's form. lanebus prefers the blocks."""

import json
from collections.abc import Iterable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.json_parser import require_few_values
from lanebus.handlers.json_fields import Object

__all__ = ("calls_beside", "calls_out")


def calls_beside(values: Iterable[Object], known: Iterable[str]) -> tuple[ToolCallBlock, ...]:
    """Return the calls in `values` whose ids are not in `known`, in order.

    A call has the form of OpenAI's Chat Completions, or is a flat object. The codec stores other values in
    the message's metadata alone.
    """
    ids = set(known)
    found: list[ToolCallBlock] = []
    for value in values:
        function = value.get("function")
        fields = function if isinstance(function, dict) else value
        id, name = value.get("id"), fields.get("name")
        if isinstance(id, str) and isinstance(name, str) and id not in ids:
            found.append(_call(id, name, fields))
            ids.add(id)
    return tuple(found)


def calls_out(blocks: Iterable[ToolCallBlock]) -> list[JsonValue] | None:
    """Return the calls in the form of OpenAI's Chat Completions, without remote calls. Return None if no call remains.

    Remote calls are left out because they do not come from a provider.
    """
    calls: list[JsonValue] = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _text(call)}}
        for call in blocks
        if not call.remote
    ]
    return calls or None


def _call(id: str, name: str, fields: dict[str, JsonValue]) -> ToolCallBlock:
    arguments = fields.get("arguments", fields.get("args"))
    if not isinstance(arguments, str):
        return ToolCallBlock(id=id, name=name, arguments={} if arguments is None else arguments)
    try:
        require_few_values(arguments)
        parsed: JsonValue = json.loads(arguments)
    except (DecodeError, ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return ToolCallBlock(id=id, name=name, arguments={}, arguments_raw=arguments)
    return ToolCallBlock(id=id, name=name, arguments=parsed)


def _text(call: ToolCallBlock) -> str:
    if call.arguments_raw is not None and not call.arguments:
        return call.arguments_raw
    return json.dumps(call.arguments, ensure_ascii=False)
