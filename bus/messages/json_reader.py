"""Native JSON in: what we write is read at once, what others write is turned into our spelling first.

`read_llm` and `read_extension` read the entries of a log, which the bus itself has written. Their first try is
pydantic's own parser over our exact form; only what does not fit goes the second way: `aliases.py` renames keys, keeps
unknown blocks, and what is then still wrong gets a typed error. That parser takes the last of two equal keys, and NaN
in free JSON. Measured: a search for NaN alone makes a log a third slower to read, the strict parser six times; so that
is for where others' JSON comes in: `read_message` refuses both, and so does all that goes through `parse_json`.
"""

import json
from collections.abc import Callable
from typing import Annotated, NoReturn, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from lanebus.bus.errors import DecodeError, UnknownKind, UnknownRole
from lanebus.bus.messages.aliases import canonical
from lanebus.bus.messages.context_entry import AnyContextEntry, ContextEntry
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import parse_json, require_depth
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import LlmMessage, Message

__all__ = (
    "AgentMessage",
    "LlmLaneMessage",
    "Publishable",
    "parse_json",
    "read_delta",
    "read_extension",
    "read_llm",
    "read_message",
    "require_depth",
)

AgentMessage = LlmMessage | ExtensionMessage
"""Seed 001's envelope of both lanes: `role`, `as_llm()`, `turn_id`, `with_turn_id()`."""

LlmLaneMessage = LlmMessage | ContextEntry
Publishable = LlmMessage | ContextEntry | ExtensionMessage

_ROLES = {
    Lane.LLM: frozenset({"system", "developer", "user", "assistant", "toolResult", "context"}),
    Lane.EXTENSION: frozenset({"extension"}),
}

T = TypeVar("T")

_llm: TypeAdapter[LlmLaneMessage] = TypeAdapter(Annotated[Message | AnyContextEntry, Field(discriminator="role")])
_extension: TypeAdapter[ExtensionMessage] = TypeAdapter(ExtensionMessage)
_delta: TypeAdapter[Delta] = TypeAdapter(Delta)

_llm_from_json = _llm.validator.validate_json
_extension_from_json = _extension.validator.validate_json
_delta_from_json = _delta.validator.validate_json


def read_llm(data: bytes | str) -> LlmLaneMessage:
    """A message or context entry of the LLM lane from its JSON; every spelling of the seeds is understood.

    Raises:
        UnknownRole, UnknownKind: it belongs to no lane, or to the other one.
        DecodeError: it is no JSON, or not the shape of its role; names the path to the fault.
    """
    try:
        message: LlmLaneMessage = _llm_from_json(data)
    except ValidationError:
        return _read_spelled(_llm.validate_json, parse_json(data), lane=Lane.LLM)
    return message


def read_extension(data: bytes | str) -> ExtensionMessage:
    """A message of the extension lane from its JSON.

    Raises:
        UnknownRole: it is none of this lane; there is no way from one lane to the other.
        DecodeError: it is no JSON, or `kind` or `data` is missing.
    """
    try:
        message: ExtensionMessage = _extension_from_json(data)
    except ValidationError:
        return _read_spelled(_extension.validate_json, parse_json(data), lane=Lane.EXTENSION)
    return message


def read_delta(data: bytes | str) -> Delta:
    """A live delta from its JSON.

    Raises:
        DecodeError: it is not one.
    """
    try:
        delta: Delta = _delta_from_json(data)
    except ValidationError as error:
        _raise(error)
    return delta


def read_message(data: bytes | str) -> Publishable:
    """A message of either lane from its JSON; its `role` decides, nothing else does.

    Raises:
        UnknownRole, UnknownKind, DecodeError: as for `read_llm` and `read_extension`.
    """
    value = parse_json(data)
    if isinstance(value, dict) and value.get("role") == "extension":
        return _read_spelled(_extension.validate_json, value, lane=Lane.EXTENSION)
    return _read_spelled(_llm.validate_json, value, lane=Lane.LLM)


def _read_spelled(validate: Callable[[str], T], value: JsonValue, *, lane: Lane) -> T:
    if not isinstance(value, dict):
        raise DecodeError("", "a message is a JSON object")
    spelled = canonical(value)
    role = spelled.get("role")
    if not isinstance(role, str):
        raise DecodeError("role", "a message needs a role")
    if role not in _ROLES[lane]:
        raise UnknownRole(role)
    try:
        # As JSON, since strict validation takes an amount of money from text there, and from a Decimal alone elsewhere.
        return validate(json.dumps(spelled))
    except ValidationError as error:
        _raise(error)


def _raise(error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_context=False, include_input=True)[0]
    if first["type"] == "union_tag_invalid" and first["loc"] == ("context",):
        raise UnknownKind(str(first["input"].get("kind"))) from None
    if first["type"] == "union_tag_not_found" and first["loc"] == ("context",):
        raise DecodeError("kind", "a context entry needs a kind") from None
    raise DecodeError(".".join(_path_in_data(first["loc"])), first["msg"]) from None


def _path_in_data(loc: tuple[int | str, ...]) -> list[str]:
    """pydantic's path without the tags of the unions it went through, which are not in the data."""
    parts = loc[1:] if loc and loc[0] in _ROLES[Lane.LLM] else loc
    if loc[:1] == ("context",):
        parts = parts[1:]
    return [
        str(part)
        for index, part in enumerate(parts)
        if not (index >= 2 and isinstance(parts[index - 1], int) and parts[index - 2] == "content")
    ]
