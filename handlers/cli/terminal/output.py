"""Print the answer of a command: tables to a terminal, JSON to a file or a pipe."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import click

from lanebus.handlers.cli.terminal.line import Line
from lanebus.handlers.cli.terminal.screen import painted
from lanebus.handlers.cli.terminal.table import Column, line, table
from lanebus.handlers.cli.terminal.text import plain
from lanebus.handlers.json_text import compact
from lanebus.handlers.unseen import UNSAFE

__all__ = ("Output", "put", "put_lines", "tell")

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
    from lanebus.bus.error_text import without_secrets  # noqa: PLC0415  # loads the errors, which --help does not need

    put(plain(without_secrets(text)), is_error=True, flush=True)


def _escape(match: re.Match[str]) -> str:
    """Return the JSON escape of a character. A character above U+FFFF needs a pair of escapes."""
    character = match[0]
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]
