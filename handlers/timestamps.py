"""Moments in ISO 8601 as whole milliseconds since 1970, and back."""

from datetime import UTC, datetime, timedelta

from lanebus.bus.errors import DecodeError

__all__ = ("datetime_of", "milliseconds_of", "parse_datetime")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_datetime(text: str, path: str, standard: str = "ISO 8601") -> datetime:
    """The moment that a text is, with a zone only where it names one.

    Raises:
        DecodeError: it is none; its reason names the `standard`.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError(path, f"{text[:40]!r} is no moment in {standard}") from None


def milliseconds_of(moment: datetime) -> int:
    """Milliseconds UTC; what is finer is cut. A moment without a zone is UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # In whole numbers: timestamp() is a float, which may name the millisecond before.
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def datetime_of(milliseconds: int) -> datetime:
    """The moment in UTC. Raises OverflowError: it is in no calendar."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
