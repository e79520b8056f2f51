"""Where a command's answer goes: tables to a terminal, JSON to a file or pipe."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import click

from lanebus.handlers.cli.terminal.table import Column, line, table
from lanebus.handlers.cli.terminal.text import plain
from lanebus.handlers.json_text import compact

__all__ = ("Output", "tell")

T = TypeVar("T")

# A terminal obeys some of these, and others turn the text around; in JSON they may be escaped anywhere in a text.
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_NOT_ASCII = re.compile("[^\x00-\x7e]")


class Output:
    """The answer of a command, on stdout."""

    def __init__(self, *, is_json: bool, fit: int | None) -> None:
        self.is_json = is_json
        """JSON, one object a line; else tables"""
        self.fit = fit
        """columns of the terminal; None where there is none"""

    @classmethod
    def of(cls, ctx: click.Context) -> "Output":
        """As `--json` or `--table` say, else as stdout is a terminal or not."""
        is_terminal = sys.stdout.isatty()
        form = cast("str | None", ctx.meta.get("lanebus.handlers.cli.form"))
        has_width = is_terminal or os.environ.get("COLUMNS", "").isdigit()
        return cls(
            is_json=form == "json" if form else not is_terminal,
            fit=shutil.get_terminal_size().columns if has_width else None,
        )

    def line(self, text: str, *, flush: bool = False) -> None:
        """Any text of ours; with `flush` whoever reads has it at once."""
        print(text, flush=flush)

    def json(self, value: object, *, flush: bool = False) -> None:
        """A value as one line of JSON."""
        self.json_text(compact(value), flush=flush)

    def json_text(self, text: str, *, flush: bool = False) -> None:
        """What is JSON already."""
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print((_OBEYED if is_utf8 else _NOT_ASCII).sub(_escape, text), flush=flush)

    def answer(self, value: object, text: str) -> None:
        """One value as JSON, or what it says in a line."""
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
        """Each item as a line of JSON or as a row of one table. Where there are none, people are told so.

        Args:
            empty: what to tell them, on stderr.
        """
        if self.is_json:
            for item in items:
                self.json(to_json(item))
        elif items:
            self.table(columns, [to_row(item) for item in items])
        else:
            tell(empty)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their titles."""
        for text in table(columns, rows, self.fit):
            print(text)

    def row(self, columns: Sequence[Column], row: Sequence[str], *, flush: bool = False) -> None:
        """One row of a table whose rows are not all known."""
        print(line(columns, row, self.fit), flush=flush)


def tell(text: str) -> None:
    """A line for the user, on stderr: a warning, a hint, what went wrong."""
    print(plain(text), file=sys.stderr, flush=True)


def _escape(found: re.Match[str]) -> str:
    """A character as JSON may have it: two escapes for one that takes more than 16 bits."""
    character = found[0]
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else json.dumps(character)[1:-1]
