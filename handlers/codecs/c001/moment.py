"""Moments as seed 001 writes them in its events: RFC 3339 in UTC. Ours are whole milliseconds; what is finer is cut."""

from datetime import UTC, datetime, timedelta

from bus.errors import DecodeError
from handlers.codecs.c001.fields import Fields

__all__ = ("read_moment", "write_moment")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_moment(fields: Fields) -> int:
    """The field `timestamp` in milliseconds UTC.

    Raises:
        DecodeError: it is none, or names no zone.
    """
    text = fields.text("timestamp")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError(fields.at("timestamp"), f"{text[:40]!r} is no moment in RFC 3339") from None
    if moment.tzinfo is None or "T" not in text.upper():
        raise DecodeError(fields.at("timestamp"), f"{text[:40]!r} names no zone")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def write_moment(milliseconds: int) -> str:
    """Such as `2026-01-01T00:00:00Z`, with the milliseconds where there are some."""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    text = moment.isoformat(timespec="milliseconds" if milliseconds % 1000 else "seconds")
    return text.removesuffix("+00:00") + "Z"
