"""JSON as every edge of the bus reads it: what parsers disagree about is refused, with the path to it."""

import json
import math
from collections.abc import Iterator
from typing import NoReturn, cast

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError

__all__ = ("DEPTH_LIMIT", "DIGITS_LIMIT", "parse_json", "require_depth", "require_json")

DEPTH_LIMIT = 64
"""Objects and lists inside each other; parsers disagree above, and no message needs it."""

DIGITS_LIMIT = 4300
"""Of a whole number. Source: Python, which takes no longer texts for numbers."""

_TOO_LONG = 10**DIGITS_LIMIT


def parse_json(data: bytes | str) -> JsonValue:
    """JSON from outside: UTF-8, no NaN, no duplicate keys, no lone surrogates, bounded depth.

    Raises:
        DecodeError: names the fault, and the path to it where it stands in a value.
    """
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
        raise DecodeError("", f"not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise DecodeError("", "a number has too many digits") from None
    require_json(value)
    return value


def require_depth(value: JsonValue, path: str = "") -> None:
    """Look whether JSON is nested no deeper than everybody can read.

    Args:
        path: where the value stands, for the error.

    Raises:
        DecodeError: it is nested deeper than `DEPTH_LIMIT`.
    """
    if _is_deeper(value, DEPTH_LIMIT):
        inside = next((key for key, item in _children(value) if _is_deeper(item, DEPTH_LIMIT - 1)), "")
        raise DecodeError(_joined(path, inside), f"nested deeper than {DEPTH_LIMIT}")


def require_json(value: JsonValue) -> None:
    """Look whether a value that was parsed elsewhere is JSON as `parse_json` gives it.

    Raises:
        DecodeError: nested too deep, a number that is not finite or too long, a lone surrogate; names the path to it.
    """
    require_depth(value)
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:  # UnicodeEncodeError is one too
        raise DecodeError(*_fault_in(value)) from None


def _is_deeper(value: JsonValue, limit: int) -> bool:
    # Every entry with free JSON goes through here, most of them flat: only what holds something is looked into.
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
    """What the parser itself would have let through; where it stands is found by a second look."""

    def __init__(self, reason: str, key: str = "") -> None:
        super().__init__(reason)
        self.reason, self.key = reason, key


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _Fault("given twice in one object", _twice(pairs) or "")
    return result


def _twice(pairs: list[tuple[str, JsonValue]]) -> str | None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    return None


def _constant(name: str) -> NoReturn:
    raise _Fault(f"{name} is not JSON")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Fault(f"{text[:20]} is too large a number")
    return number


class _Pairs(list[tuple[str, JsonValue]]):
    """An object as it is written, its keys as often as they stand there."""


def _path_of_fault(text: str, key: str) -> str:
    """Where the first such fault is. It takes a second look, for which only bad data pays."""
    try:
        whole: object = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):  # it breaks off after the fault
        return key
    stack: list[tuple[str, object]] = [("", whole)]
    while stack:
        path, node = stack.pop()
        match node:
            case float() if not math.isfinite(node):
                return path.removesuffix(".")
            case _Pairs():
                if (name := _twice(node)) is not None:
                    return path + name
                stack += [(f"{path}{name}.", item) for name, item in reversed(node)]
            case list():
                items = cast("list[object]", node)
                stack += [(f"{path}{index}.", item) for index, item in reversed([*enumerate(items)])]
            case _:
                pass
    return key


def _fault_in(value: JsonValue) -> tuple[str, str]:
    """The path and the reason."""
    stack: list[tuple[str, JsonValue]] = [("", value)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, float) and not math.isfinite(node):
            return path, "is not a finite number"
        if isinstance(node, int) and abs(node) >= _TOO_LONG:
            return path, "a number has too many digits"
        keys = [key for key, _ in _children(node)]
        if not all(map(_is_text, [node, *keys] if isinstance(node, str) else keys)):
            return path, "a text holds a lone surrogate"
        stack += [(_joined(path, key), item) for key, item in reversed([*_children(node)])]
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
