"""Where a command's answer goes: tables to a terminal, JSON to a file or pipe."""

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import cast

import click

from handlers.cli.table import Column, line, table
from handlers.cli.text import plain

__all__ = ("Output", "tell")

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
        form = cast("str | None", ctx.meta.get("handlers.cli.form"))
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
        self.json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=flush)

    def json_text(self, text: str, *, flush: bool = False) -> None:
        """What is JSON already."""
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print((_OBEYED if is_utf8 else _NOT_ASCII).sub(_escape, text), flush=flush)

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
