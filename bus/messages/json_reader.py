"""Read messages from JSON. The form that lanebus writes is read directly, other formats after their keys are renamed.

`read_llm` and `read_extension` read the entries of a log, which the bus itself has written. They first try pydantic's
parser, which reads only lanebus's own form. If that fails, keys are renamed and unknown blocks are kept. Faults that
remain raise a typed error.

Pydantic's parser accepts duplicate keys (it uses the last of them) and NaN in free JSON. Measured: a search for NaN
alone makes reading a log a third slower, and the strict parser makes it six times slower. So only JSON from outside is
parsed strictly: `read_message` and `parse_json` refuse duplicate keys and NaN.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, NoReturn, TypeAlias, TypeVar, cast

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from lanebus.bus.errors import DecodeError, UnknownKind, UnknownRole, check_bounds, require_instance
from lanebus.bus.messages.base import Lane
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import AnyContextEntry, ContextEntry, Delta, LlmMessage, Message

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


# The keys of earlier systems, and the names in lanebus to which they are changed before validation.
#
# Source: the documents of the five earlier systems (see `bus/messages`), which use different names for the same fields.
# If a message has two spellings of one key with different values, that is an error, because the intended value is
# unknown.

Object = dict[str, JsonValue]

_MESSAGE = {
    "contents": "content",
    "message_id": "id",
    "turn_id": "turnId",
    "stop_reason": "stopReason",
    "errorMessage": "error_message",
    "error": "error_message",
    "response_id": "responseId",
    "raw_stop_reason": "rawStopReason",
    "usages": "usage",
    "tool_call_id": "toolCallId",
    "call_id": "toolCallId",
    "tool_name": "toolName",
    "is_error": "isError",
    "batch_id": "batchId",
    "terminate_message": "terminateMessage",
}
_USAGE = {
    "cacheRead": "cache_read",
    "cacheWrite": "cache_write",
    "totalTokens": "total_tokens",
    "imageTokens": "image_tokens",
    "audioTokens": "audio_tokens",
}
_TURN_ID = {"loop_id": "loopId", "turn_index": "turnIndex"}
_MEDIA = {
    "file_id": "fileId",
    "data_base64": "data",
    "mime_type": "mimeType",
    "media_type": "mimeType",
    "file_name": "filename",
    "size_bytes": "sizeBytes",
    "duration_ms": "durationMs",
}
_BLOCK_TYPE = {
    "tool_call": "toolCall",
    "remote_tool_call": "toolCall",
    "tool_result": "toolResult",
    "reasoning": "thinking",
}
_MIME = {"mime_type": "mimeType", "media_type": "mimeType"}
_BLOCK: dict[str, dict[str, str]] = {
    "text": {"content": "text", "textSignature": "signature"},
    "image": {"alt_text": "altText", "group_id": "groupId", **_MIME, "data_base64": "data"},
    "audio": {"sample_rate": "sampleRate", "group_id": "groupId"},
    "video": {},
    "document": {},
    "data": _MIME,
    "thinking": {"text": "thinking", "content": "thinking", "summary": "thinking", "thinkingSignature": "signature"},
    "redacted_thinking": {},
    "toolCall": {
        "args": "arguments",
        "arguments_raw": "argumentsRaw",
        "tool_kind": "toolKind",
        "tool_type": "toolType",
        "call_type": "callType",
        "thoughtSignature": "signature",
    },
    "toolResult": {
        "id": "toolCallId",
        "call_id": "toolCallId",
        "tool_call_id": "toolCallId",
        "output": "content",
        "is_error": "isError",
        "terminate_message": "terminateMessage",
    },
    "annotation": {},
    "error": {"error": "message"},
    "unknown": {},
}
_ROLE = {"tool": "toolResult"}


def canonical(message: Object) -> Object:
    """Return the message with lanebus's key names. Unknown keys are kept, so that validation can report them.

    Raises:
        DecodeError: two spellings of one key have different values, or a block has no type.
    """
    role = message.get("role")
    if role in ("extension", "context", "delta"):  # a tuple and not a set, because the role may be unhashable
        return message
    result = _rename(message, _MESSAGE, "")
    turn = result.get("turnId")
    if isinstance(turn, dict) and _is_turn_id(spelled := _rename(turn, _TURN_ID, "turnId")):
        result["turnId"] = spelled
    if isinstance(role, str):
        result["role"] = _ROLE.get(role, role)
    if "content" in result:
        result["content"] = _blocks(result["content"], "content")
    if isinstance(usage := result.get("usage"), dict):
        result["usage"] = _rename(usage, _USAGE, "usage")
    if isinstance(number := result.get("id"), int) and not isinstance(number, bool):
        result["id"] = str(number)
    metadata = {} if result.get("metadata") is None else result["metadata"]
    is_malformed = result.get("turnId") is not None and not _is_turn_id(result["turnId"])
    if is_malformed and isinstance(metadata, dict) and "invalidTurnId" not in metadata:
        # The `two-lane-agent` system reads a malformed turn id as None. Here it is kept in the metadata, which no
        # provider receives.
        result["metadata"] = {**metadata, "invalidTurnId": result.pop("turnId")}
    return result


def _blocks(content: JsonValue, path: str) -> JsonValue:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return content
    return [_block(block, f"{path}.{index}") for index, block in enumerate(content)]


def _block(block: JsonValue, path: str) -> JsonValue:
    if not isinstance(block, dict):
        return block
    kind = block.get("type", block.get("kind"))
    if not isinstance(kind, str):
        raise DecodeError(path, "a block needs a type")
    kind = kind.lower() if kind.isupper() else kind
    known = _BLOCK_TYPE.get(kind, kind)
    if known not in _BLOCK:
        return {"type": "unknown", "raw": block}
    names = _BLOCK[known]
    if known == "toolCall" and "type" in block:
        names = {**names, "kind": "toolKind"}  # the `coding-agent` system uses `kind` as a hint for UIs
    result = _rename(block, names, path)
    if "type" not in block:
        del result["kind"]
    result["type"] = known
    if kind == "remote_tool_call":
        result["remote"] = True
    for name in ("media", "thumbnail"):
        if isinstance(media := result.get(name), dict):
            result[name] = _rename(media, _MEDIA, f"{path}.{name}")
    match known:
        case "toolResult":
            _split_result(result, path)
        case "data":
            _put_in_media(result, path)
        case "annotation" if "annotation" in result:
            _put(result, "refs", [result.pop("annotation")], f"{path}.annotation")
        case _:
            pass
    return result


def _split_result(result: Object, path: str) -> None:
    """Keep the text or blocks of a tool result in `content`; move a content of any other JSON to `structured`."""
    content = result.get("content")
    is_blocks = isinstance(content, list) and all(isinstance(item, dict) and "type" in item for item in content)
    if isinstance(content, str) or is_blocks:
        result["content"] = _blocks(content, f"{path}.content")
    elif "content" in result:
        del result["content"]
        if content is not None:
            _put(result, "structured", content, f"{path}.content")


def _put_in_media(data: Object, path: str) -> None:
    """Move the inline data of the first graph format, `data_base64`, from the block to the block's `media`."""
    inline = data.pop("data_base64", None)
    if inline is not None:
        _put(data, "media", {"kind": "data", "data": inline, "mimeType": data.get("mimeType")}, f"{path}.data_base64")


def _put(holder: Object, key: str, value: JsonValue, path: str) -> None:
    if holder.get(key) not in (None, value):
        raise DecodeError(path, f"differs from {key!r}, which is the same key: keep one of them")
    holder[key] = value


def _rename(value: Object, names: Mapping[str, str], path: str) -> Object:
    result: Object = {}
    for key, item in value.items():
        name = names.get(key, key)
        if name in result and result[name] != item:
            raise DecodeError(
                f"{path}.{key}" if path else key, f"differs from {name!r}, which is the same key: keep one of them"
            )
        result[name] = item
    return result


def _is_turn_id(value: JsonValue) -> bool:
    if not isinstance(value, dict):
        return False
    loop, index = value.get("loopId"), value.get("turnIndex")
    return isinstance(loop, str) and isinstance(index, int) and not isinstance(index, bool) and index >= 0


# Parse JSON from outside the bus strictly. If parsers could read an input differently, it is refused with its path.

DEPTH_LIMIT = 64
"""Maximum number of levels of nested objects and lists. Parsers differ beyond this depth, and no message needs more."""

DIGITS_LIMIT = 4300
"""Maximum number of digits of an integer. Source: Python's limit for converting text to int."""

_TOO_LONG = 10**DIGITS_LIMIT

_LONE_SURROGATE = re.compile(
    r"[\ud800-\udfff]"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""a surrogate, or the escape of one, without the other half; in JSON without escaped backslashes"""

_SIGNS = (b"[", b"{", b",")
_OTHER_BYTES = bytes(each for each in range(256) if each not in b'"[{,')


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonBounds:
    """How much memory the values of a JSON text may take. Three bytes of text, `[],`, are a list of 80 bytes."""

    parsed_bytes: int = 8 * 1_048_576
    """the values of any text may take this many bytes"""
    parsed_per_byte: int = 12
    """the values of a longer text may take this many bytes for each byte of the text"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_JSON_BOUNDS = JsonBounds()


def require_few_values(data: bytes | str, bounds: JsonBounds = DEFAULT_JSON_BOUNDS) -> None:
    """Check that a JSON text has not so many values that they would fill the memory, before it is parsed.

    It only counts characters, which takes a few percent of the time of parsing.

    Args:
        data: the JSON. It need not be valid.
        bounds: how much memory its values may take.

    Raises:
        DecodeError: the text has too many values.
    """
    limit = max(bounds.parsed_bytes, bounds.parsed_per_byte * len(data))
    if len(data) * 210 <= limit:  # hot path: too short for any number of values
        return
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if _memory_of(*map(raw.count, _SIGNS)) <= limit:
        return
    # Texts may have these signs too, so count again without the texts. A quote that is part of a text is escaped.
    signs = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHER_BYTES)
    lists = objects = commas = inside = 0
    for start in range(0, len(signs), 65_536):
        parts = signs[start : start + 65_536].split(b'"')
        outside = b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2
        lists, objects, commas = (
            lists + outside.count(b"["),
            objects + outside.count(b"{"),
            commas + outside.count(b","),
        )
    memory = _memory_of(lists, objects, commas)
    if memory > limit:
        counted = f"{lists} lists, {objects} objects and {commas} commas"
        limits = f"about {memory} bytes of memory, and {limit} are the limit"
        raise DecodeError("", f"too many values: {counted} would take {limits}. Split it, or leave values out")


def _memory_of(lists: int, objects: int, commas: int) -> int:
    """Return about how many bytes the values take in Python, measured."""
    return 80 * lists + 210 * objects + 12 * commas


def parse_json(data: bytes | str, bounds: JsonBounds = DEFAULT_JSON_BOUNDS) -> JsonValue:
    """Parse JSON from outside the bus.

    Args:
        data: the JSON.
        bounds: how much memory its values may take.

    Raises:
        DecodeError: the data is not UTF-8 or not JSON, or it contains NaN, a duplicate key, a lone surrogate, too large
            a number, too deep nesting, or too many values. If the fault is inside a value, the error names the value's
            path.
    """
    require_few_values(data, bounds)
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise DecodeError("", f"not UTF-8 at byte {error.start}") from None
    try:
        value: JsonValue = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except _Fault as fault:
        raise DecodeError(_path_of_fault(text, fault.key), fault.reason) from None
    except RecursionError:
        raise DecodeError("", "nested too deep") from None
    except json.JSONDecodeError as error:
        raise DecodeError("", f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos}") from None
    except ValueError:
        raise DecodeError("", "a number has too many digits") from None
    # UTF-8 has no surrogates. Searching is much cheaper than writing the value again, which `require_json` does.
    may_have_surrogates = r"\u" in text or (data is text and not text.isascii())
    if may_have_surrogates and _LONE_SURROGATE.search(text.replace(r"\\", "  ")):
        require_json(value)
    require_depth(value)
    return value


def require_depth(value: JsonValue, path: str = "") -> None:
    """Check that JSON is not nested deeper than `DEPTH_LIMIT`.

    Args:
        value: the JSON.
        path: the path of the value, for the error.

    Raises:
        DecodeError: the value is nested deeper.
    """
    if _is_deeper(value, DEPTH_LIMIT):
        inside = next((key for key, item in _children(value) if _is_deeper(item, DEPTH_LIMIT - 1)), "")
        raise DecodeError(_joined(path, inside), f"nested deeper than {DEPTH_LIMIT}")


def require_json(value: JsonValue) -> None:
    """Check a value that another parser has read: it must be JSON that `parse_json` would accept.

    Raises:
        DecodeError: the value is nested too deep, or contains a number that is not finite or has too many digits, or a
            lone surrogate. The error names the path.
    """
    require_depth(value)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:  # UnicodeEncodeError is a ValueError too
        raise DecodeError(*_fault_in(value)) from None


def _is_deeper(value: JsonValue, limit: int) -> bool:
    # Hot path: every entry with free JSON is checked. Most free JSON is flat, so only objects and lists are visited.
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
    return bool(level)


class _Fault(ValueError):
    """A fault in the text that `json.loads` itself would accept. A second parse finds the path of the fault."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(reason)
        self.reason, self.key = reason, key


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Fault("given twice in one object", _duplicate_key(pairs) or "")
    return result


def _duplicate_key(pairs: list[tuple[str, JsonValue]]) -> str | None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            return name
        names.add(name)
    return None


def _constant(name: str) -> NoReturn:
    raise _Fault(f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Fault(f"{text[:20]} is too large a number")
    return number


class _Pairs(list[tuple[str, JsonValue]]):
    """The pairs of a JSON object, including duplicate keys."""


_Place: TypeAlias = "tuple[_Place, str] | None"
"""A name, and the place of the value around it.

A path for each value would take quadratic time and memory, as the names of the objects around a long list may be long.
"""


def _path(place: _Place) -> str:
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(name)
    return ".".join(reversed(names))


_SEARCHED = 2_000
"""number of values that are looked at to say where a fault is: it may be at the end of a million bytes"""


def _path_of_fault(text: str, key: str) -> str:
    """Return the path of the first `_Fault`, if it is near the beginning. This parses the text again, which costs time
    only for bad data."""
    try:
        whole: object = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):  # the text has another fault after this one
        return key
    for place, node in islice(_walk(whole), _SEARCHED):
        if isinstance(node, float) and not math.isfinite(node):
            return _path(place)
        if isinstance(node, _Pairs) and (name := _duplicate_key(node)) is not None:
            return _path((place, name))
    return key


def _fault_in(value: JsonValue) -> tuple[str, str]:
    """Return the path of the first fault, if it is near the beginning, and its reason."""
    for place, node in islice(_walk(value), _SEARCHED):
        if isinstance(node, float) and not math.isfinite(node):
            return _path(place), "is not a finite number"
        if isinstance(node, int) and abs(node) >= _TOO_LONG:
            return _path(place), "a number has too many digits"
        texts = (
            [node] if isinstance(node, str) else [*cast("dict[str, object]", node)] if isinstance(node, dict) else []
        )
        if not all(map(_is_text, texts)):
            return _path(place), "a text holds a lone surrogate"
    return "", "a number is not finite or has too many digits, or a text holds a lone surrogate"


def _walk(value: object) -> Iterator[tuple[_Place, object]]:
    """Yield each value of a JSON value with its place, an outer one before those in it."""
    stack: list[tuple[_Place, Iterator[tuple[str, object]]]] = [(None, iter(_children(value)))]
    yield None, value
    while stack:
        around, children = stack[-1]
        child = next(children, None)
        if child is None:
            stack.pop()
            continue
        place = (around, child[0])
        yield place, child[1]
        stack.append((place, iter(_children(child[1]))))


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _children(node: object) -> Iterable[tuple[str, JsonValue]]:
    match node:
        case _Pairs():
            return node
        case dict():
            return cast("dict[str, JsonValue]", node).items()
        case list():
            return ((str(index), item) for index, item in enumerate(cast("list[JsonValue]", node)))
        case _:
            return ()
