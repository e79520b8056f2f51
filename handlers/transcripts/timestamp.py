"""Parse the timestamp of a transcript's line."""

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.timestamps import milliseconds_of, parse_datetime

__all__ = ("milliseconds",)


def milliseconds(value: JsonValue, path: str) -> int | None:
    """Return a timestamp in milliseconds UTC, or None for null.

    Args:
        value: milliseconds UTC, or ISO 8601 text. Text without a time zone is UTC.
        path: path of the value in the line, for errors.

    Raises:
        DecodeError: `value` is neither a number nor valid ISO 8601 text.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value)
    if isinstance(value, str):
        return milliseconds_of(parse_datetime(value, path))
    raise DecodeError(path, "wants milliseconds or ISO 8601 text")
