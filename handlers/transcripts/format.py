"""What a transcript format is: how one of its lines is known and what the line says."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.transcripts.bounds import TranscriptBounds
from lanebus.handlers.transcripts.position_map import Moves

__all__ = ("Format", "Gatherer", "Moved", "TranscriptEntry", "TranscriptLine", "UnknownFormat", "Unplaced")


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


@dataclass(frozen=True, slots=True)
class Moved:
    """A message that names entries by the positions they had in the log that it was exported from."""

    place: Callable[[Moves], Publishable]
    """gives the message, from where those entries went"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """What one line says, and where it hangs in a tree of entries, if its format has one."""

    message: Publishable | Unplaced | Moved
    also: tuple[Publishable, ...] = ()
    """what the same line says besides: published in the same step, right behind the message"""
    position: int | None = None
    """where it stood in the log that it was exported from"""
    is_lost: bool = False
    """it was of the LLM lane there and cannot be here: what names it is led to its neighbours"""
    id: str | None = None
    is_in_tree: bool = False
    """False: it follows the line before it, and may still be the parent of others"""
    parent: str | None = None
    """id of the entry that it follows in the tree; None is the place before the first entry"""


class TranscriptLine(NamedTuple):
    """A line that was read, or several that say one thing together."""

    number: int
    """of the first, from 1; in a document the count of the message"""
    size_bytes: int
    value: JsonValue
    content: bytes
    """what makes it the same line again, wherever it stands"""


class Gatherer(Protocol):
    """Brings together what a format spreads over several lines. It may hold lines back, within bounds of its own."""

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        """The lines that are complete with this one, in the order in which they are to go in."""
        ...

    def end(self) -> Iterable[TranscriptLine]:
        """What is still held back at the end of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One transcript format. All functions are pure and see parsed JSON."""

    name: str
    sign: str
    """what a line of it shows, for the text of an error"""
    recognizes: Callable[[JsonValue], bool]
    read: Callable[[JsonValue], TranscriptEntry]
    """raises MessageError for a line that says nothing sensible"""
    identity: Callable[[JsonValue], bytes] | None = None
    """what tells one transcript from another, from the first line that is recognised; None: that line's bytes"""
    gather: Callable[[TranscriptBounds], Gatherer] | None = None
    """a new one for each transcript; None where each line stands for itself"""
    split: Callable[[Sequence[JsonValue]], Sequence[JsonValue]] | None = None
    """Where a file is one JSON document rather than lines: its messages, from all the JSON values of the file. Raises
    MessageError: they are no one conversation; nothing goes in."""
    origin: Callable[[JsonValue], tuple[str, float] | None] | None = None
    """the session that it was exported from, and when that was made, from the first line that is recognised"""
