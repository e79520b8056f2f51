"""Print the answer of a command: tables to a terminal, JSON to a file or a pipe.

Each line goes through `put`, so no control character of a message reaches a terminal. No table is wider than the
terminal. `Screen` draws a full-screen view in place.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeVar, cast

import click

from lanebus.handlers.cli.text import Column, line, plain, table, visible
from lanebus.handlers.projections import UNSAFE
from lanebus.handlers.serve import compact

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
