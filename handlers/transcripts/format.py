"""Transcript formats: how to recognise a format's lines, and how to read them."""

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

    Fields: `looked_for`, from format name to how its lines look; `lines`, the number of lines searched.
    """

    def __init__(self, looked_for: dict[str, str], lines: int) -> None:
        wanted = "; ".join(f"{name}: {sign}" for name, sign in looked_for.items())
        super().__init__(f"unknown transcript format: none of the first {lines} lines is one of {wanted}")
        self.looked_for, self.lines = looked_for, lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A message that refers to another entry, whose position only the import knows."""

    kind: Literal["kept", "entry", "leaf", "stand"]
    """which position `place` gets. kept: of the first entry on this branch that a compaction keeps, from `names` on.
    entry: of the entry `names`. leaf: of the current leaf. stand: of the entry `names`, or of its nearest ancestor in
    the LLM lane"""
    names: str | int | None = None
    """id of the other entry, or its ordinal in the transcript from 0"""
    place: Callable[[int | None], Publishable]
    """returns the message, given the position; None if there is no such entry, 0 for before the first entry"""


@dataclass(frozen=True, slots=True)
class Moved:
    """A message that refers to entries by their positions in the log it was exported from."""

    place: Callable[[Moves], Publishable]
    """returns the message, given the new positions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """The content of one line, and its place in the tree of entries, if the format has one."""

    message: Publishable | Unplaced | Moved
    also: tuple[Publishable, ...] = ()
    """further messages of the same line, published in the same step after `message`"""
    position: int | None = None
    """its position in the log it was exported from; None if it is no export"""
    is_lost: bool = False
    """it was in the LLM lane of that log and cannot be here; references to it go to a neighbour"""
    id: str | None = None
    """its id in the transcript"""
    is_in_tree: bool = False
    """whether `parent` says which entry it follows. If False, it follows the previous line"""
    parent: str | None = None
    """id of the entry that it follows; None means that it is a first entry"""


class TranscriptLine(NamedTuple):
    """A line that was read, or several lines that form one message."""

    number: int
    """number of the first line, from 1; in a document, of the message"""
    size_bytes: int
    value: JsonValue
    content: bytes
    """identifies the line: the same line in another file or place has the same content"""


class Gatherer(Protocol):
    """Joins lines that form one message. It may hold lines back, within its bounds."""

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        """Add a line, and return the lines that are now complete, in the order to import them."""
        ...

    def end(self) -> Iterable[TranscriptLine]:
        """Return the lines still held back at the end of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One transcript format. All functions are pure and take parsed JSON."""

    name: str
    sign: str
    """how a line of it looks, for error texts"""
    recognizes: Callable[[JsonValue], bool]
    """whether a line is of this format"""
    read: Callable[[JsonValue], TranscriptEntry]
    """reads a line; raises MessageError if it is invalid"""
    identity: Callable[[JsonValue], bytes] | None = None
    """returns bytes that identify the transcript, given the first recognised line. None means that line's bytes"""
    gather: Callable[[TranscriptBounds], Gatherer] | None = None
    """creates a gatherer for one transcript. None means that each line is a message of its own"""
    split: Callable[[Sequence[JsonValue]], Sequence[JsonValue]] | None = None
    """for a format that is one JSON document: returns its messages, given all JSON values of the file. Raises
    MessageError if they are not one conversation; nothing is imported then"""
    origin: Callable[[JsonValue], tuple[str, float] | None] | None = None
    """returns the session that it was exported from and that session's `created`, given the first recognised line"""
