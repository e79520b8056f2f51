"""Draw a full-screen view on a terminal, in place."""

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from lanebus.handlers.cli.terminal.line import Line, Tone
from lanebus.handlers.cli.terminal.text import visible

__all__ = ("Screen", "can_draw", "has_colours")

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
