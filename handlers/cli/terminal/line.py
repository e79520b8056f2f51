"""A line of text on a terminal, with its colour. Pure."""

from typing import Literal, NamedTuple

__all__ = ("Line", "Tone")

Tone = Literal["plain", "title", "dim", "warn", "bad"]


class Line(NamedTuple):
    text: str
    tone: Tone = "plain"
