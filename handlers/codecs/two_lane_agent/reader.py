"""Read messages from the two-lane agent's JSON. This module accepts what the agent accepts, with two exceptions.

First, the role alone decides the lane. The two-lane agent reads `{"role":"user","kind":…,"data":…}` as an extension
message; this module raises an error. Second, the two-lane agent drops malformed optional fields, such as a turn id.
This module keeps them in the metadata, under keys such as `invalidTurnId`, where no provider sees them.
"""

from collections.abc import Callable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, UnknownRole
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import Block, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock, UnknownBlock
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.node import NodeTag
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.json_fields import Object, made

__all__ = ("INVALID", "is_malformed", "read_blocks", "read_llm_message", "read_message", "read_usage")


def read_message(value: JsonValue, path: str = "") -> LlmMessage | ExtensionMessage:
    """Read a message of either lane. The paths in errors start with `path`.

    Raises:
        UnknownRole: the two-lane agent has no such role.
        DecodeError: a field is missing or has the wrong form. The error names the path to it.
    """
    fields = Fields(value, path)
    if fields.text("role") == "extension":
        return made(ExtensionMessage, {"kind": fields.text("kind"), "data": fields.any("data")}, path)
    return read_llm_message(value, path)


def read_llm_message(value: JsonValue, path: str = "") -> LlmMessage:
    """Read a message of the LLM lane; see `read_message`."""
    fields = Fields(value, path)
    role = fields.text("role")
    if role not in _ROLES:
        raise UnknownRole(role)
    cls, read = _ROLES[role]
    common: dict[str, object] = {"content": read_blocks(fields), "timestamp": fields.whole("timestamp")}
    return made(cls, {**common, **read(fields), **_tolerated(fields)}, path)


def read_blocks(fields: Fields) -> tuple[Block, ...]:
    """Read the blocks in the field `content`."""
    found = enumerate(fields.items("content"))
    return tuple(_read_block(Fields(item, f"{fields.at('content')}.{index}")) for index, item in found)


def read_usage(fields: Fields) -> Usage:
    """Read the counts of tokens, whose keys are in snake_case. Only `input` and `output` are required."""
    return Usage(
        input=fields.whole("input"),
        output=fields.whole("output"),
        reasoning=fields.whole("reasoning", default=0),
        cache_read=fields.whole("cache_read", default=0),
        cache_write=fields.whole("cache_write", default=0),
        total_tokens=fields.whole("total_tokens", default=0),
    )


def _assistant(fields: Fields) -> dict[str, object]:
    return {
        "stopReason": fields.text("stopReason"),  # the JSON key and not the field's name, so that errors name the key
        "model": fields.text("model"),
        "provider": fields.text("provider"),
        "usage": read_usage(fields.object("usage")),
        "error_message": fields.optional_text("error_message"),
    }


def _tool_result(fields: Fields) -> dict[str, object]:
    return {
        "tool_call_id": fields.text("toolCallId"),
        "tool_name": fields.text("toolName"),
        "is_error": fields.flag("isError"),
    }


_ROLES: dict[str, tuple[type[LlmMessage], Callable[[Fields], dict[str, object]]]] = {
    "user": (UserMessage, lambda _: {}),
    "assistant": (AssistantMessage, _assistant),
    "toolResult": (ToolResultMessage, _tool_result),
}


# --- blocks -------------------------------------------------------------------------------------------------------


def _read_block(fields: Fields) -> Block:
    match fields.text("type"):
        case "text":
            return TextBlock(text=fields.text("text"))
        case "thinking":
            return ThinkingBlock(text=fields.text("thinking"), signature=fields.optional_text("signature"))
        case "toolCall":
            call: dict[str, object] = {
                "id": fields.text("id"),
                "name": fields.text("name"),
                "arguments": fields.any("arguments"),
            }
            return made(ToolCallBlock, call, fields.path)
        case "image":
            return _read_image(fields)
        case other:
            raise DecodeError(fields.at("type"), f"the two-lane agent has no block {other[:40]!r}")


def _read_image(fields: Fields) -> Block:
    data, mime_type = fields.text("data"), fields.text("mimeType")
    try:
        return ImageBlock(media=made(MediaRef, {"kind": "data", "data": data, "mime_type": mime_type}, fields.path))
    except DecodeError:
        # The two-lane agent does not check base64, so its logs may contain invalid data. An unknown block keeps the log
        # readable and reaches no provider.
        return UnknownBlock(raw={"type": "image", "data": data, "mimeType": mime_type})


# --- fields that 001 adds to the bare message ---------------------------------------------------------------------


def _turn_id(fields: Fields) -> TurnId:
    turn = fields.object("turnId")
    return TurnId(loop_id=turn.text("loopId"), turn_index=turn.whole("turnIndex", bits=32))


def _tags(fields: Fields) -> tuple[NodeTag, ...] | None:
    found = [Fields(tag, f"{fields.at('tags')}.{index}") for index, tag in enumerate(fields.items("tags"))]
    return tuple(_tag(tag) for tag in found) or None


def _tag(tag: Fields) -> NodeTag:
    values: dict[str, object] = {
        "kind": tag.text("kind"),
        "text": tag.text("text"),
        "created_at_turn": tag.whole("created_at_turn", bits=32),
        "abandoned_node_ids": tag.wholes("abandoned_node_ids"),
    }
    return made(NodeTag, values, tag.path)


def _hint(fields: Fields) -> JsonValue:
    hint = fields.object("provenanceHint")
    hint.text("kind")
    return hint.value


_ADDED: dict[str, tuple[str, Callable[[Fields], object]]] = {
    "turnId": ("turn_id", _turn_id),
    "nodeId": ("node_id", lambda fields: fields.whole("nodeId")),
    "parentId": ("parent_id", lambda fields: fields.whole("parentId")),
    "tags": ("tags", _tags),
    "provenanceHint": ("provenance_hint", _hint),
}

INVALID = {f"invalid{key[0].upper()}{key[1:]}": key for key in _ADDED}
"""Key in the metadata for a malformed field → the field's own key."""


def is_malformed(key: str, value: JsonValue) -> bool:
    """Return whether the two-lane agent would drop `value` because it is malformed for the field `key`."""
    try:
        _ADDED[key][1](Fields({key: value}))
    except DecodeError:
        return value is not None
    return False


def _tolerated(fields: Fields) -> dict[str, object]:
    """Read the fields that may be absent, null or malformed."""
    found: dict[str, object] = {}
    invalid: Object = {}
    for name, key in INVALID.items():
        if fields.value.get(key) is None:
            continue
        ours, read = _ADDED[key]
        try:
            found[ours] = read(fields)
        except DecodeError:
            invalid[name] = fields.value[key]
    return {**found, "metadata": invalid} if invalid else found
