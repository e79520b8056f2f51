"""What a transcript format is: how one of its lines is known and what the line says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from bus.errors import MessageError
from bus.messages.reading import Publishable

__all__ = ("Format", "TranscriptEntry", "UnknownFormat", "Unplaced")


class UnknownFormat(MessageError):
    """No known format recognises any of the first lines.

    Fields: `looked_for`, format name -> what one of its lines shows; `lines`, how many lines were looked at.
    """

    def __init__(self, looked_for: dict[str, str], lines: int) -> None:
        wanted = "; ".join(f"{name}: {sign}" for name, sign in looked_for.items())
        super().__init__(f"unknown transcript format: none of the first {lines} lines is one of {wanted}")
        self.looked_for, self.lines = looked_for, lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A message that names an earlier entry, whose position only the import knows."""

    kind: Literal["kept", "entry", "leaf", "stand"]
    """kept: the first entry that stays before a compaction; entry: just that one; leaf: where the log stood before;
    stand: where the log stands at that entry, or at the nearest before it that a model reads"""
    names: str | int | None = None
    """the entry's id, or its count in the transcript from 0"""
    place: Callable[[int | None], Publishable]
    """gives the message, from the position; None where nothing of that name went in, 0 is before the first entry"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """What one line says, and where it hangs in a tree of entries, if its format has one."""

    message: Publishable | Unplaced
    also: tuple[Publishable, ...] = ()
    """what the same line says besides: published in the same step, right behind the message"""
    id: str | None = None
    is_in_tree: bool = False
    """False: it follows the line before it"""
    parent: str | None = None
    """id of the entry that it follows in the tree; None is the place before the first entry"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One transcript format. Both functions are pure and see one parsed line."""

    name: str
    sign: str
    """what a line of it shows, for the text of an error"""
    recognizes: Callable[[JsonValue], bool]
    read: Callable[[JsonValue], TranscriptEntry]
    """raises MessageError for a line that says nothing sensible"""
