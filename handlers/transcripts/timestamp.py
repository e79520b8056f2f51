"""The timestamp of a transcript's line."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.timestamps import milliseconds_of, parse_datetime

__all__ = ("milliseconds",)


def milliseconds(value: JsonValue, path: str) -> int | None:
    """A moment in milliseconds UTC, from those or from ISO 8601 text, which is UTC where it names no zone.

    Raises:
        DecodeError: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value)
    if isinstance(value, str):
        return milliseconds_of(parse_datetime(value, path))
    raise DecodeError(path, "wants milliseconds or ISO 8601 text")
