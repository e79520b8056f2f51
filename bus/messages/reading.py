"""Native JSON in: what we write is read at once, what others write is turned into our spelling first.

The first try is pydantic's own parser over our exact form; every entry of a log takes it. Only what does not fit goes
the second way: `spelling.py` renames keys, keeps unknown blocks, and what is then still wrong gets a typed error.
"""

import json
import math
from collections.abc import Callable, Iterable
from typing import Annotated, NoReturn, TypeVar

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from bus.errors import DecodeError, UnknownKind, UnknownRole
from bus.messages.context_entry import AnyContextEntry, ContextEntry
from bus.messages.delta import Delta
from bus.messages.extension import ExtensionMessage
from bus.messages.lanes import Lane
from bus.messages.message import LlmMessage, Message
from bus.messages.spelling import canonical

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

DEPTH_LIMIT = 64
"""Objects and lists inside each other; parsers disagree above, and no message needs it."""

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


def parse_json(data: bytes | str) -> JsonValue:
    """JSON as every edge of the bus reads it: UTF-8, no NaN, no duplicate keys, no lone surrogates, bounded depth.

    Raises:
        DecodeError: names the fault.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        value: JsonValue = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
        require_depth(value)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("", f"not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise DecodeError("", "a text holds a lone surrogate") from None
    except RecursionError:
        raise DecodeError("", "nested too deep") from None
    except json.JSONDecodeError as error:
        raise DecodeError("", f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise DecodeError("", "a number has too many digits") from None
    return value


def require_depth(value: JsonValue) -> None:
    """Look whether JSON is nested no deeper than everybody can read.

    Raises:
        DecodeError: it is nested deeper than `DEPTH_LIMIT`.
    """
    level: list[JsonValue] = [value]
    for _ in range(DEPTH_LIMIT):
        level = [item for node in level for item in _children(node)]
        if not level:
            return
    raise DecodeError("", f"nested deeper than {DEPTH_LIMIT}")


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


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise DecodeError(next(name for name in names if names.count(name) > 1), "given twice in one object")
    return result


def _constant(name: str) -> NoReturn:
    raise DecodeError("", f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise DecodeError("", f"{text[:20]} is too large a number")
    return number


def _children(node: JsonValue) -> Iterable[JsonValue]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
