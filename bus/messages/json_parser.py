"""Parse JSON from outside the bus strictly. If parsers could read an input differently, it is refused with its path."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeAlias, cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, check_bounds

__all__ = (
    "DEFAULT_JSON_BOUNDS",
    "DEPTH_LIMIT",
    "DIGITS_LIMIT",
    "JsonBounds",
    "parse_json",
    "require_depth",
    "require_few_values",
    "require_json",
)

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


def _path_of_fault(text: str, key: str) -> str:
    """Return the path of the first `_Fault`. This parses the text again, which costs time only for bad data."""
    try:
        whole: object = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):  # the text has another fault after this one
        return key
    stack: list[tuple[_Place, object]] = [(None, whole)]
    while stack:
        place, node = stack.pop()
        match node:
            case float() if not math.isfinite(node):
                return _path(place)
            case _Pairs():
                if (name := _duplicate_key(node)) is not None:
                    return _path((place, name))
                stack += [((place, name), item) for name, item in reversed(node)]
            case list():
                items = cast("list[object]", node)
                stack += [((place, str(index)), item) for index, item in reversed([*enumerate(items)])]
            case _:
                pass
    return key


def _fault_in(value: JsonValue) -> tuple[str, str]:
    """Return the path of the first fault, and its reason."""
    stack: list[tuple[_Place, JsonValue]] = [(None, value)]
    while stack:
        place, node = stack.pop()
        if isinstance(node, float) and not math.isfinite(node):
            return _path(place), "is not a finite number"
        if isinstance(node, int) and abs(node) >= _TOO_LONG:
            return _path(place), "a number has too many digits"
        keys = [key for key, _ in _children(node)]
        if not all(map(_is_text, [node, *keys] if isinstance(node, str) else keys)):
            return _path(place), "a text holds a lone surrogate"
        stack += [((place, key), item) for key, item in reversed([*_children(node)])]
    return "", "is not JSON"


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


def _children(node: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    match node:
        case dict():
            yield from node.items()
        case list():
            for index, item in enumerate(node):
                yield str(index), item
        case _:
            return
