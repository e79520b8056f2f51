"""Fields of other programs' JSON, checked. Every fault names the path to it in that JSON."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError

__all__ = ("Object", "as_flag", "as_list", "as_object", "as_text", "as_whole", "below", "first_fault", "made")

Object = dict[str, JsonValue]

M = TypeVar("M", bound=BaseModel)


def below(path: str, name: str | int) -> str:
    """The path to a field of what stands at `path`."""
    return f"{path}.{name}" if path else str(name)


def as_object(value: JsonValue, path: str) -> Object:
    """The value itself. Raises DecodeError: it is no object."""
    if not isinstance(value, dict):
        raise DecodeError(path, "wants an object")
    return value


def as_list(value: JsonValue, path: str) -> list[JsonValue]:
    """The value itself. Raises DecodeError: it is no list."""
    if not isinstance(value, list):
        raise DecodeError(path, "wants a list")
    return value


def as_text(value: JsonValue, path: str) -> str:
    """The value itself. Raises DecodeError: it is no text."""
    if not isinstance(value, str):
        raise DecodeError(path, "wants text")
    return value


def as_flag(value: JsonValue, path: str) -> bool:
    """The value itself. Raises DecodeError: it is neither true nor false."""
    if not isinstance(value, bool):
        raise DecodeError(path, "wants true or false")
    return value


def as_whole(value: JsonValue, path: str, *, limit: int | None = None, wants: str = "a whole number from 0") -> int:
    """The value itself, a whole number from 0 and below `limit`; None means unlimited.

    Raises:
        DecodeError: it is none. Its reason begins with "wants" and goes on with `wants`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (limit is not None and value >= limit):
        raise DecodeError(path, f"wants {wants}")
    return value


def made(kind: type[M], fields: Mapping[str, object], path: str = "") -> M:
    """A value of ours from its fields, whose rules may ask for more than theirs.

    Raises:
        DecodeError: one does not fit; its path is below `path`.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        names, reason = first_fault(error)
        raise DecodeError(".".join(filter(None, (path, *names))), reason) from None


def first_fault(error: ValidationError) -> tuple[list[str], str]:
    """Where the first fault is, name by name, and what it is. It repeats nothing of the value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return [*map(str, first["loc"])], first["msg"]
