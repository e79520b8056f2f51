"""Convert moments between ISO 8601 text, datetimes and whole milliseconds since 1970."""

from datetime import UTC, datetime, timedelta

from lanebus.bus.errors import DecodeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_datetime(text: str, path: str, standard: str = "ISO 8601") -> datetime:
    """Parse a date and time in ISO 8601. The result has a time zone only if the text names one.

    Args:
        text: the text to parse.
        path: path of the value, for the error.
        standard: name of the expected form, for the error.

    Raises:
        DecodeError: the text is not a date and time in ISO 8601.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError(path, f"{text[:40]!r} is no moment in {standard}") from None


def milliseconds_of(moment: datetime) -> int:
    """Return a moment in milliseconds UTC, rounded down. A moment without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # Integer division: timestamp() is a float, which may round to the previous millisecond.
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def datetime_of(milliseconds: int) -> datetime:
    """Return the moment in UTC. Raise OverflowError if datetime cannot represent it."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
