"""Format numbers, times and untrusted text for one line, and rows of text in columns. Pure."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from lanebus.handlers.projections import UNSAFE, UNSAFE_IN_TEXT

# Format numbers, times and untrusted text for one line. Pure.

_LONGEST = 4000


def visible(text: str) -> str:
    """Return text that cannot control a terminal: each unsafe character is written as its code, such as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE_IN_TEXT.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shell_word(text: str) -> str:
    """Return text as one word for a shell, which cannot run any part of it. Use it for what people copy.

    Ids come from a model's provider, and may hold anything. Unsafe characters are written as bash and zsh read them;
    no shell ends the word before its end.
    """
    if re.fullmatch(r"[\w.:/-][\w.:/#-]*", text, re.ASCII):
        return text
    if UNSAFE.search(text) is None:
        return "'" + text.replace("'", "'\\''") + "'"
    codes = {"\\": "\\\\", "'": "\\x27"}
    return "$'" + "".join(codes.get(each, _shell_code(each) if UNSAFE.match(each) else each) for each in text) + "'"


def _shell_code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def plain(text: str) -> str:
    """Return text on one line, with unsafe characters written as codes, and cut to `_LONGEST` characters."""
    # Cut first: a message may have megabytes.
    return visible(" ".join(text[:_LONGEST].split()))


def width(text: str) -> int:
    """Return the columns that text takes on a terminal: two for a wide character, none for a combining character."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def cut(text: str, columns: int) -> str:
    """Cut text to a number of columns. If text was cut, it ends with an ellipsis."""
    if width(text) <= columns:
        return text
    taken, end = 0, 0
    for end, character in enumerate(text):  # noqa: B007  # used below
        taken += _width(character)
        if taken > columns - 1:
            break
    return text[:end] + "…" if columns > 0 else ""


def count(number: int) -> str:
    """Format an integer, as in `54,693,675`."""
    return f"{number:,}"


def about(estimated: bool | None) -> str:
    """Return "≈", to print before a number, if the number is an estimate; else ""."""
    return "≈" if estimated else ""


def money(dollars: Decimal | None) -> str:
    """Format US dollars, to the millionth below one dollar, else to the cent. None is "unknown"."""
    if dollars is None:
        return "unknown"
    return f"${dollars:,.6f}" if abs(dollars) < 1 else f"${dollars:,.2f}"


def size(size_bytes: int) -> str:
    """Format a number of bytes, as in `999 B`, `1.5 kB` and `20.1 MB`."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    number = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 1000:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:,.1f} TB"


def counted_from(session: str, position: int) -> str:
    """Return the notice that the numbers of a session do not include trimmed entries, and how to include them."""
    return (
        f"{session}: counted from entry {position}, because earlier entries were removed uncounted: use --archive to "
        "read archived entries, and `lanebus trim` to count entries before removing them"
    )


def moment(seconds: float) -> str:
    """Format seconds UTC as local time; 0 is "-"."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S") if seconds else "-"


def clock_time(seconds: float) -> str:
    """Format seconds UTC as the local time of day, with the date if it is not today's; 0 is "-"."""
    if not seconds:
        return "-"
    at = datetime.fromtimestamp(seconds, UTC).astimezone()
    return at.strftime("%H:%M:%S" if at.date() == datetime.now(UTC).astimezone().date() else "%Y-%m-%d %H:%M")


def duration(seconds: float) -> str:
    """Format seconds, as in `0.3 s` and `12 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


# Lay out rows of text in columns, for a terminal. Pure.

_GAP = "  "
_NARROWEST = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    is_number: bool = False
    """whether cells are aligned at the right"""
    is_flexible: bool = False
    """whether cells are shortened if the table is too wide"""
    is_indented: bool = False
    """whether leading spaces of cells are kept, as in a tree. Use it only for text that lanebus itself wrote"""
    columns: int = 0
    """minimum width, in character columns of the terminal"""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], fit: int | None) -> Iterator[str]:
    """Yield a line with the titles, then one line for each row.

    Args:
        columns: the columns.
        rows: for each row a cell for each column. Control characters and line breaks are removed.
        fit: maximum number of columns of a line; None means unlimited.
    """
    cells = [[column.title for column in columns], *(_cells(columns, row) for row in rows)]
    widths = [max(column.columns, *(width(row[index]) for row in cells)) for index, column in enumerate(columns)]
    if fit is not None:
        _shrink(columns, widths, fit)
    for row in cells:
        yield _line(columns, row, widths, fit)


def line(columns: Sequence[Column], row: Sequence[str], fit: int | None) -> str:
    """Return one row as text, without knowing the other rows. Rows align only if no cell is wider than its column's
    `Column.columns`."""
    cells = _cells(columns, row)
    widths = [max(column.columns, width(cell)) for column, cell in zip(columns, cells, strict=True)]
    if fit is not None:
        _shrink(columns, widths, fit)
    return _line(columns, cells, widths, fit)


def _cells(columns: Sequence[Column], row: Sequence[str]) -> list[str]:
    return [
        _indent(cell) + plain(cell) if column.is_indented else plain(cell)
        for column, cell in zip(columns, row, strict=True)
    ]


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip(" "))]


def _shrink(columns: Sequence[Column], widths: list[int], fit: int) -> None:
    """Narrow the flexible columns until the line fits, starting with the widest column."""
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - fit
    flexible = [index for index, column in enumerate(columns) if column.is_flexible]
    while over > 0 and flexible:
        index = max(flexible, key=lambda index: widths[index])
        if widths[index] <= _NARROWEST:
            return
        widths[index] -= 1
        over -= 1


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], fit: int | None) -> str:
    parts: list[str] = []
    for column, cell, column_width in zip(columns, cells, widths, strict=True):
        text = cut(cell, column_width)
        padding = " " * (column_width - width(text))
        parts.append(padding + text if column.is_number else text + padding)
    whole = _GAP.join(parts).rstrip()
    return whole if fit is None else cut(whole, fit)
