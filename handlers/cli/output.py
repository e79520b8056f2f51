"""Print the answer of a command: tables to a terminal, JSON to a file or a pipe. How values are shown.

Each line goes through `put`, so no control character of a message reaches a terminal. No table is wider than the
terminal. `Screen` draws a full-screen view in place.
"""

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeVar, cast

import click

from lanebus.handlers.projections import UNSAFE, UNSAFE_IN_TEXT
from lanebus.handlers.serve import compact

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


Tone = Literal["plain", "title", "dim", "warn", "bad"]


class Line(NamedTuple):
    text: str
    tone: Tone = "plain"


T = TypeVar("T")

_NOT_ASCII = re.compile("[^\x00-\x7e]")


class Output:
    """Prints the output of a command to stdout, as JSON or as tables and text."""

    def __init__(self, *, is_json: bool, fit: int | None) -> None:
        self.is_json = is_json
        """whether to print JSON, one object per line; else tables"""
        self.fit = fit
        """columns of the terminal; None if stdout is not a terminal"""

    @classmethod
    def of(cls, ctx: click.Context) -> "Output":
        """Choose the form from `--json` or `--table`. The default is tables if stdout is a terminal, else JSON."""
        is_terminal = sys.stdout.isatty()
        form = cast("str | None", ctx.meta.get("lanebus.handlers.cli.form"))
        is_wide = "lanebus.handlers.cli.wide" in ctx.meta
        has_width = is_terminal or os.environ.get("COLUMNS", "").isdigit()
        return cls(
            is_json=form == "json" if form else not is_terminal,
            fit=shutil.get_terminal_size().columns if has_width and not is_wide else None,
        )

    def line(self, text: str, *, flush: bool = False) -> None:
        """Print a line. `flush` writes it at once."""
        put(text, flush=flush)

    def json(self, value: object, *, flush: bool = False) -> None:
        """Print a value as one line of JSON."""
        self.json_text(compact(value), flush=flush)

    def json_text(self, text: str, *, flush: bool = False) -> None:
        """Print text that is already JSON, with unsafe characters escaped."""
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        # Line ends are between values: in a text, JSON has escaped them.
        lines = text.split("\n")
        print("\n".join((UNSAFE if is_utf8 else _NOT_ASCII).sub(_escape, each) for each in lines), flush=flush)

    def answer(self, value: object, text: str) -> None:
        """Print `value` if the output is JSON, else `text`, which says the same to people."""
        if self.is_json:
            self.json(value)
        else:
            self.line(text)

    def items(
        self,
        items: Sequence[T],
        to_json: Callable[[T], object],
        columns: Sequence[Column],
        to_row: Callable[[T], Sequence[str]],
        *,
        empty: str,
    ) -> None:
        """Print each item as a line of JSON, or as a row of one table.

        Args:
            items: the items, in order.
            to_json: returns the JSON value of an item.
            columns: the columns of the table.
            to_row: returns the cells of an item.
            empty: printed to stderr instead of an empty table.
        """
        if self.is_json:
            for item in items:
                self.json(to_json(item))
        elif items:
            self.table(columns, [to_row(item) for item in items])
        else:
            tell(empty)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print a table with titles."""
        for text in table(columns, rows, self.fit):
            put(text)

    def row(
        self, columns: Sequence[Column], row: Sequence[str], *, flush: bool = False, is_whole: bool = False
    ) -> None:
        """Print one row without titles, for output whose later rows are not known yet. `is_whole` cuts nothing."""
        put(line(columns, row, None if is_whole else self.fit), flush=flush)


def put(text: str | Line, *, colours: bool = False, is_error: bool = False, flush: bool = False) -> None:
    """Print one line, with unsafe characters written as codes. Every line of text of the command line passes here.

    Args:
        text: the line.
        colours: whether to print the colour of a `Line`.
        is_error: print to stderr.
        flush: write the line at once.
    """
    shown = painted(Line(text) if isinstance(text, str) else text, colours=colours)
    print(shown, file=sys.stderr if is_error else sys.stdout, flush=flush)


def put_lines(text: str, *, is_error: bool = False) -> None:
    """Print a text of several lines, such as a help or a traceback."""
    for each in text.removesuffix("\n").split("\n"):
        put(each, is_error=is_error)


def tell(text: str) -> None:
    """Print a line for the user to stderr: a warning, a hint or an error. It has no secrets."""
    from lanebus.bus.text import without_secrets  # noqa: PLC0415  # loads the errors, which --help does not need

    put(plain(without_secrets(text)), is_error=True, flush=True)


def _escape(match: re.Match[str]) -> str:
    """Return the JSON escape of a character. A character above U+FFFF needs a pair of escapes."""
    character = match[0]
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]


# Draw a full-screen view on a terminal, in place.

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""codes to switch to the alternate screen and hide the cursor, and to undo both"""

_HOME, _CLEAR, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"

_COLOURS: Mapping[Tone, str] = {"title": "\x1b[1m", "dim": "\x1b[2m", "warn": "\x1b[33m", "bad": "\x1b[31m"}
_NO_COLOUR = "\x1b[0m"


def can_draw() -> bool:
    """Return whether stdout is a terminal with cursor movement."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_colours() -> bool:
    """Return whether to print colours: on a terminal, unless NO_COLOR is set. Source: https://no-color.org"""
    return can_draw() and not os.environ.get("NO_COLOR")


class Screen:
    """Uses the terminal's alternate screen during the block, and restores the terminal however the block ends.

    Each drawing is written over the previous drawing in one write. The screen is not cleared first, so nothing
    flickers.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._size: os.terminal_size | None = None

    def __enter__(self) -> Self:
        self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write(_LEAVE)

    def show(self, lines: Sequence[Line], size: os.terminal_size) -> None:
        """Draw the lines, which must fit into a window of `size`."""
        # After a resize the terminal has wrapped the old lines, so they must be cleared.
        start = _HOME if size == self._size else _HOME + _CLEAR
        self._size = size
        texts = [painted(line, colours=self._colours) + _CLEAR_LINE for line in lines]
        self._write(start + "\r\n".join(texts) + _CLEAR_BELOW)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def painted(line: Line, *, colours: bool) -> str:
    """Return a line's text, with the escape codes of its colour and no others."""
    colour, text = _COLOURS.get(line.tone) if colours else None, visible(line.text)
    return f"{colour}{text}{_NO_COLOUR}" if colour and text else text
