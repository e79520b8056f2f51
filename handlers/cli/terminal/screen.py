"""The window of a terminal, drawn anew in place."""

import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from lanebus.handlers.cli.terminal.dashboard import Line, Tone

__all__ = ("Screen", "can_draw", "has_colours")

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""a page of its own and no cursor; and back"""

_HOME, _CLEAR, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[J"

_COLOURS: Mapping[Tone, str] = {"title": "\x1b[1m", "dim": "\x1b[2m", "warn": "\x1b[33m", "bad": "\x1b[31m"}
_NO_COLOUR = "\x1b[0m"


def can_draw() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_colours() -> bool:
    """Whether colours are wanted. Source: https://no-color.org"""
    return can_draw() and not os.environ.get("NO_COLOR")


class Screen:
    """Takes the window for the length of the block, and gives it back as it was, however the block ends.

    Each picture is one write, over the one before: nothing is cleared first, so nothing flickers.
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
        """Draw lines, each no longer than the window is wide, and no more than it is high."""
        # A window of another size has turned the lines that were on it.
        start = _HOME if size == self._size else _HOME + _CLEAR
        self._size = size
        texts = [painted(line, colours=self._colours) + _CLEAR_LINE for line in lines]
        self._write(start + "\r\n".join(texts) + _CLEAR_BELOW)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def painted(line: Line, *, colours: bool) -> str:
    """The text of a line, as a terminal is to have it."""
    colour = _COLOURS.get(line.tone) if colours else None
    return f"{colour}{line.text}{_NO_COLOUR}" if colour and line.text else line.text
