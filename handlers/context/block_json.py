"""Read and write a compaction block as JSON in the `two-lane-agent` format. In the log, it has no extension
messages."""

import json
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.messages.compaction_block import CompactionBlock
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import parse_json
from lanebus.bus.messages.json_reader import Publishable, read_message
from lanebus.handlers.json_fields import first_fault

__all__ = ("ReadBlock", "read_block", "write_block")

_SECTIONS = ("keep_recent", "keep_compacted")


class ReadBlock(NamedTuple):
    """A compaction block, and the parts of its JSON that were left out."""

    block: CompactionBlock
    left_out: tuple[str, ...]
    """Paths of the extension messages in the JSON. They are left out because no model may read them."""


def read_block(value: JsonValue) -> ReadBlock:
    """Read a compaction block from JSON in the `two-lane-agent` format. The messages in the block may have any spelling
    that the bus reads.

    Raises:
        DecodeError: `value` is not a compaction block. The error names the path to the fault.
    """
    if not isinstance(value, dict):
        raise DecodeError("", "a compaction block is a JSON object")
    left_out: list[str] = []
    fields: dict[str, JsonValue] = {key: item for key, item in value.items() if item is not None}
    for name in _SECTIONS:
        if name in fields:
            fields[name] = _section(fields[name], name, left_out)
    try:
        return ReadBlock(CompactionBlock.model_validate_json(json.dumps(fields)), tuple(left_out))
    except ValidationError as error:
        names, reason = first_fault(error)
        raise DecodeError(".".join(names), reason) from None


def write_block(block: CompactionBlock) -> JsonValue:
    """Return the block as JSON in the `two-lane-agent` format."""
    return parse_json(block.to_json())


def _section(section: JsonValue, path: str, left_out: list[str]) -> JsonValue:
    if not isinstance(section, dict) or not isinstance(messages := section.get("messages"), list):
        raise DecodeError(path, "wants an object with a range and a list of messages")
    read: list[JsonValue] = []
    for index, value in enumerate(messages):
        place = f"{path}.messages.{index}"
        message = _message(value, place)
        if isinstance(message, ExtensionMessage):
            left_out.append(place)
        else:
            read.append(parse_json(message.to_json()))
    return {**section, "messages": read}


def _message(value: JsonValue, path: str) -> Publishable:
    try:
        return read_message(json.dumps(value))
    except DecodeError as error:
        raise DecodeError(f"{path}.{error.path}" if error.path else path, error.reason) from None
    except MessageError as error:
        raise DecodeError(path, str(error)) from None
