"""Numbers, moments and other people's text, as they are shown in a line. Pure."""

import unicodedata
from datetime import UTC, datetime
from decimal import Decimal

__all__ = ("count", "counted_from", "cut", "duration", "moment", "money", "plain", "size", "width")

_LONGEST = 4000


def plain(text: str) -> str:
    """The text on one line, without anything a terminal would obey; its beginning, if it is very long."""
    # What is cut away is not looked at: a message may be megabytes.
    line = " ".join(text[:_LONGEST].split())
    return line if line.isprintable() else "".join(character for character in line if character.isprintable())


def width(text: str) -> int:
    """How many columns of a terminal the text takes: wide letters two, marks over other letters none."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def cut(text: str, columns: int) -> str:
    """The text, or its beginning and an ellipsis where it takes more columns."""
    if width(text) <= columns:
        return text
    taken, end = 0, 0
    for end, character in enumerate(text):  # noqa: B007  # it is used below
        taken += _width(character)
        if taken > columns - 1:
            break
    return text[:end] + "…" if columns > 0 else ""


def count(number: int) -> str:
    """`54,693,675`"""
    return f"{number:,}"


def money(dollars: Decimal | None) -> str:
    """US dollars: to the millionth below one dollar, else to the cent; "unknown" is not 0."""
    if dollars is None:
        return "unknown"
    return f"${dollars:,.6f}" if abs(dollars) < 1 else f"${dollars:,.2f}"


def size(size_bytes: int) -> str:
    """`999 B`, `1.5 kB`, `20.1 MB`"""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    number = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:,.1f} TB"


def counted_from(session: str, position: int) -> str:
    """That figures of a session lack its beginning, and what helps the next time."""
    return (
        f"{session}: counted from entry {position} on, as those before it are gone and were not counted; "
        "`lanebus trim` counts what it takes, and --archive reads what was archived"
    )


def moment(seconds: float) -> str:
    """Seconds UTC as this machine's local time; "-" for 0."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if seconds else "-"


def duration(seconds: float) -> str:
    """`0.3 s`, `12 min 5 s`"""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
