"""Read and write moments of the graph format: ISO 8601 text or numbers."""

import math

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.timestamps import datetime_of, milliseconds_of, parse_datetime

__all__ = ("iso_time", "read_moment", "seconds")

_MILLISECONDS_FROM = 1e11
"""A larger number is milliseconds, which the TypeScript client writes. As seconds, this number is in the year 5138."""

_LIMIT = 2**53


def read_moment(value: JsonValue, path: str) -> int | None:
    """Return a moment in milliseconds UTC, rounded. Text without a zone is UTC.

    Raises:
        DecodeError: `value` is not a moment, or out of range.
    """
    match value:
        case None:
            return None
        case bool():
            raise DecodeError(path, "must be seconds or ISO 8601 text")
        case int() | float():
            found = _from_number(value)
        case str():
            found = milliseconds_of(parse_datetime(value, path))
        case _:
            raise DecodeError(path, "must be seconds or ISO 8601 text")
    if found is None or abs(found) > _LIMIT:
        raise DecodeError(path, "is out of the range of a timestamp")
    return found


def seconds(moment: int | None) -> float | None:
    """Return a moment in milliseconds UTC as seconds since 1970; None if `moment` is None."""
    return None if moment is None else moment / 1000


def iso_time(moment: int | None) -> str | None:
    """Return a moment in milliseconds UTC as ISO 8601 text; None if `moment` is None or outside the calendar."""
    if moment is None:
        return None
    try:
        return datetime_of(moment).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return None


def _from_number(value: float) -> int | None:
    if abs(value) > _LIMIT or not math.isfinite(value):  # in this order: a large int cannot become a float
        return None
    return round(value if abs(value) > _MILLISECONDS_FROM else value * 1000)
