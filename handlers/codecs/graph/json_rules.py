"""What must hold for any JSON before it is looked at: it can be written, sent and read back."""

import math

from pydantic import JsonValue

from bus.errors import DecodeError
from bus.messages.parsing import DEPTH_LIMIT

__all__ = ("require_json",)

_DEPTH = DEPTH_LIMIT - 8
"""An origin puts a value some objects and lists deeper than it was."""


def require_json(value: JsonValue) -> None:
    """Look whether every text can be encoded, every number is finite, and nothing is nested too deep.

    Raises:
        DecodeError: names the path to the first that is not so.
    """
    level: list[tuple[str, JsonValue]] = [("", value)]
    for _ in range(_DEPTH):
        level = [inner for path, node in level for inner in _looked_at(path, node)]
        if not level:
            return
    raise DecodeError(level[0][0], f"nested deeper than {_DEPTH}")


def _looked_at(path: str, node: JsonValue) -> list[tuple[str, JsonValue]]:
    prefix = f"{path}." if path else ""
    match node:
        case dict():
            for key in node:
                _require_text(path, key)
            return [(f"{prefix}{key}", item) for key, item in node.items()]
        case list():
            return [(f"{prefix}{index}", item) for index, item in enumerate(node)]
        case str():
            _require_text(path, node)
        case float() if not math.isfinite(node):
            raise DecodeError(path, f"{node} is not JSON")
        case _:
            pass
    return []


def _require_text(path: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DecodeError(path, "a text holds a lone surrogate") from None
