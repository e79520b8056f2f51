"""Read and write moments of the two-lane agent's events: RFC 3339 in UTC.

lanebus stores whole milliseconds; smaller fractions of a second are cut off.
"""

from lanebus.bus.errors import DecodeError
from lanebus.handlers.codecs.two_lane_agent.fields import Fields
from lanebus.handlers.timestamps import datetime_of, milliseconds_of, parse_datetime

__all__ = ("read_moment", "write_moment")


def read_moment(fields: Fields) -> int:
    """Return the field `timestamp` in milliseconds UTC.

    Raises:
        DecodeError: the field is missing, is not a moment, or has no time zone.
    """
    text = fields.text("timestamp")
    moment = parse_datetime(text, fields.at("timestamp"), "RFC 3339")
    if moment.tzinfo is None or "T" not in text.upper():
        raise DecodeError(fields.at("timestamp"), f"{text[:40]!r} names no zone")
    return milliseconds_of(moment)


def write_moment(milliseconds: int) -> str:
    """Return text such as `2026-01-01T00:00:00Z`. Milliseconds are included if they are not 0."""
    text = datetime_of(milliseconds).isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")
    return text.removesuffix("+00:00") + "Z"
