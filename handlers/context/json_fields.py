"""Checked access to the fields of JSON from other programs. Every error names the path of the field."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import json_reason

Object = dict[str, JsonValue]

M = TypeVar("M", bound=BaseModel)


def below(path: str, name: str | int) -> str:
    """Return the path of a field of the value at `path`."""
    return f"{path}.{name}" if path else str(name)


def as_object(value: JsonValue, path: str) -> Object:
    """Return the value. Raise DecodeError if it is not an object."""
    if not isinstance(value, dict):
        raise DecodeError(path, "wants an object")
    return value


def as_list(value: JsonValue, path: str) -> list[JsonValue]:
    """Return the value. Raise DecodeError if it is not a list."""
    if not isinstance(value, list):
        raise DecodeError(path, "wants a list")
    return value


def as_text(value: JsonValue, path: str) -> str:
    """Return the value. Raise DecodeError if it is not a string."""
    if not isinstance(value, str):
        raise DecodeError(path, "wants text")
    return value


def as_flag(value: JsonValue, path: str) -> bool:
    """Return the value. Raise DecodeError if it is neither true nor false."""
    if not isinstance(value, bool):
        raise DecodeError(path, "wants true or false")
    return value


def as_whole(value: JsonValue, path: str, *, limit: int | None = None, wants: str = "a whole number from 0") -> int:
    """Return the value, an integer from 0.

    Args:
        value: the value.
        path: path of the value, for the error.
        limit: the value must be less than `limit`. None means unlimited.
        wants: description of the expected value, for the error.

    Raises:
        DecodeError: the value is not an integer from 0, or is not less than `limit`.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0 or (limit is not None and value >= limit):
        raise DecodeError(path, f"wants {wants}")
    return value


def made(kind: type[M], fields: Mapping[str, object], path: str = "") -> M:
    """Return an object of the pydantic model `kind`. The model may be stricter than the program that wrote the fields.

    Raises:
        DecodeError: a field is not valid; its path is below `path`.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        names, reason = first_fault(error)
        raise DecodeError(".".join(filter(None, (path, *names))), reason) from None


def first_fault(error: ValidationError) -> tuple[list[str], str]:
    """Return where the first fault is, as a list of field names from the outside in, and the reason of the fault.

    The reason does not contain the value.
    """
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return [*map(str, first["loc"])], json_reason(first)
