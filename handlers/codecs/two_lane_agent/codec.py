"""The codec of the two-lane agent's messages.

This codec does not read or write the fields that only lanebus's own JSON has. It accepts and refuses the same JSON as
the two-lane agent, with two exceptions that `reader.py` names.

The two-lane agent has extension messages, and user, assistant and tool result messages. Their content is text, inline
images, thinking and tool calls. All other messages and blocks of lanebus are reported as losses.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.json_parser import require_json
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.codecs.codec import Codec, Written, written
from lanebus.handlers.codecs.two_lane_agent.reader import read_message
from lanebus.handlers.codecs.two_lane_agent.writer import MessageWriter
from lanebus.handlers.json_fields import Object

__all__ = ("TWO_LANE_AGENT", "TWO_LANE_AGENT_CAMEL")

_CAMEL = {
    "error_message": "errorMessage",
    "cache_read": "cacheRead",
    "cache_write": "cacheWrite",
    "total_tokens": "totalTokens",
}


def _read(value: JsonValue) -> tuple[Publishable, ...]:
    require_json(value)
    return (read_message(value),)


def _read_camel(value: JsonValue) -> tuple[Publishable, ...]:
    require_json(value)
    if not isinstance(value, dict) or value.get("role") != "assistant":
        return (read_message(value),)
    usage = value.get("usage")
    snake = _snake(value, "")
    if isinstance(usage, dict):
        snake["usage"] = _snake(usage, "usage.")
    return (read_message(snake),)


def _snake(value: Object, path: str) -> Object:
    for name, camel in _CAMEL.items():
        if camel in value and name in value:
            raise DecodeError(f"{path}{camel}", f"is set twice. It is the same field as {name}")
    names = {camel: name for name, camel in _CAMEL.items()}
    return {names.get(key, key): item for key, item in value.items()}


def _write(messages: Sequence[Publishable], lossy: bool) -> Written:
    writer = MessageWriter()
    values = [writer.write(message, str(index)) for index, message in enumerate(messages)]
    return written("001", [value for value in values if value is not None], writer.losses, lossy=lossy)


def _write_camel(messages: Sequence[Publishable], lossy: bool) -> Written:
    found = _write(messages, lossy)
    return Written(tuple(_camel(value) for value in found.values), found.losses)


def _camel(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict) or value.get("role") != "assistant":
        return value
    usage = value.get("usage")
    renamed = {_CAMEL.get(key, key): item for key, item in usage.items()} if isinstance(usage, dict) else usage
    return {_CAMEL.get(key, key): item for key, item in value.items()} | {"usage": renamed}


TWO_LANE_AGENT = Codec(name="001", about="an agent loop in Rust with two lanes", read=_read, write=_write)

TWO_LANE_AGENT_CAMEL = Codec(
    name="001-camel",
    about="the two-lane agent with camelCase names: writes errorMessage and usage so, and reads both spellings",
    read=_read_camel,
    write=_write_camel,
)
