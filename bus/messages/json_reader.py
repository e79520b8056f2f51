"""Read messages from JSON. The form that lanebus writes is read directly, other formats after their keys are renamed.

`read_llm` and `read_extension` read the entries of a log, which the bus itself has written. They first try pydantic's
parser, which reads only lanebus's own form. If that fails, `aliases.py` renames keys and keeps unknown blocks. Faults
that remain raise a typed error.

Pydantic's parser accepts duplicate keys (it uses the last of them) and NaN in free JSON. Measured: a search for NaN
alone makes reading a log a third slower, and the strict parser makes it six times slower. So only JSON from outside is
parsed strictly: `read_message` and `parse_json` refuse duplicate keys and NaN.
"""

import json
from collections.abc import Callable
from typing import Annotated, NoReturn, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from lanebus.bus.errors import DecodeError, UnknownKind, UnknownRole, require_instance
from lanebus.bus.messages.aliases import canonical
from lanebus.bus.messages.context_entry import AnyContextEntry, ContextEntry
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_parser import parse_json, require_depth
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.message import Message

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
"""A message of either lane. Every message has `role`, `as_llm()`, `turn_id`, `with_turn_id()`."""

LlmLaneMessage = LlmMessage | ContextEntry
"""What the LLM lane holds: messages, and context entries such as `Compaction`."""

Publishable = LlmMessage | ContextEntry | ExtensionMessage
"""What `Session.publish` accepts: messages of both lanes, and context entries."""

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
    """Read a message or context entry of the LLM lane from JSON, in lanebus's own form or in the form of an earlier
    system.

    Raises:
        UnknownRole: the role belongs to no lane, or to the other lane.
        UnknownKind: the kind of a context entry does not exist.
        DecodeError: the data is not JSON or does not fit its role. The error names the path of the fault.
    """
    try:
        message: LlmLaneMessage = _llm_from_json(data)
    except ValidationError:
        return _read_spelled(_llm.validate_json, parse_json(data), lane=Lane.LLM)
    return message


def read_extension(data: bytes | str) -> ExtensionMessage:
    """Read a message of the extension lane from its JSON.

    Raises:
        UnknownRole: the role is not "extension", the only role of this lane.
        DecodeError: the data is not JSON, or `kind` or `data` is missing.
    """
    try:
        message: ExtensionMessage = _extension_from_json(data)
    except ValidationError:
        return _read_spelled(_extension.validate_json, parse_json(data), lane=Lane.EXTENSION)
    return message


def read_delta(data: bytes | str) -> Delta:
    """Read a live delta from its JSON.

    Raises:
        DecodeError: the data is not a live delta.
    """
    try:
        delta: Delta = _delta_from_json(data)
    except ValidationError as error:
        _raise(error)
    return delta


def read_message(data: bytes | str) -> Publishable:
    """Read a message of either lane from JSON. Only the message's `role` decides to which lane it belongs.

    Raises:
        UnknownRole: as for `read_llm`.
        UnknownKind: as for `read_llm`.
        DecodeError: as for `read_llm` and `read_extension`.
    """
    require_instance("data", data, (str, bytes), "pass JSON as a text or bytes")
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
        # The value is validated as JSON, because strict validation accepts text for a Decimal only in JSON mode.
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
    """Return pydantic's path without the tags of unions, which are not in the data."""
    parts = loc[1:] if loc and loc[0] in _ROLES[Lane.LLM] else loc
    if loc[:1] == ("context",):
        parts = parts[1:]
    return [
        str(part)
        for index, part in enumerate(parts)
        if not (index >= 2 and isinstance(parts[index - 1], int) and parts[index - 2] == "content")
    ]
