"""The interface of a transcript format: the functions that recognise and read the format's lines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.json_reader import Publishable
from lanebus.handlers.transcripts.bounds import TranscriptBounds
from lanebus.handlers.transcripts.position_map import PositionMap

__all__ = (
    "ExportOrigin",
    "Format",
    "Gatherer",
    "Moved",
    "TranscriptEntry",
    "TranscriptLine",
    "UnknownFormat",
    "Unplaced",
)


class UnknownFormat(MessageError):
    """No known format recognises any of the first lines.

    Fields: `looked_for`, format name → a description of the format's lines; `lines`, the number of lines
    searched, 0 if all are blank; `is_cut`, whether the file begins with JSON that does not end.
    """

    def __init__(self, looked_for: dict[str, str], lines: int, *, is_cut: bool = False) -> None:
        if is_cut:
            fault = "the file ends within its JSON, before anything that could be imported"
        elif lines:
            fault = f"unknown transcript format: none of the first {lines} lines is of a known one"
        else:
            fault = "the transcript is empty"
        wanted = "; ".join(f"{name}: {sign}" for name, sign in looked_for.items())
        remedy = "the file was cut: copy it again" if is_cut else f"give one that has such a line: {wanted}"
        super().__init__(fault, remedy)
        self.looked_for, self.lines, self.is_cut = looked_for, lines, is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A message that refers to another entry. Only the import knows the position of that entry."""

    kind: Literal["kept", "entry", "leaf", "stand"]
    """whose position `place` gets

    - entry: the entry that `names` identifies
    - stand: this entry, or its nearest ancestor in the LLM lane
    - kept: for a compaction, the first LLM-lane entry from this entry on, on the compaction's own branch
    - leaf: the current leaf; `names` is not used
    """
    names: str | int | None = None
    """id of the other entry, or its ordinal in the transcript, counted from 0"""
    place: Callable[[int | None], Publishable]
    """returns the message, given the position. The position is None if the entry does not exist, and 0 if it is the
    place before the first entry"""


@dataclass(frozen=True, slots=True)
class Moved:
    """A message that refers to entries by positions in the log that the message was exported from."""

    place: Callable[[PositionMap], Publishable]
    """returns the message with new positions, given the map from old to new positions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """The content of one line and, if the format has a tree of entries, the line's place in the tree."""

    message: Publishable | Unplaced | Moved
    also: tuple[Publishable, ...] = ()
    """further messages of the same line, published in the same step after `message`"""
    position: int | None = None
    """the entry's position in the log that it was exported from; None if the transcript is not an export"""
    is_lost: bool = False
    """whether the entry was in the LLM lane of the exported log but cannot be imported into the LLM lane. References to
    this entry are changed to a neighbour"""
    id: str | None = None
    """the entry's id in the transcript"""
    is_in_tree: bool = False
    """whether `parent` names the entry that this entry follows. If False, this entry follows the previous line"""
    parent: str | None = None
    """id of the entry that this entry follows; None means that this is a first entry"""


class TranscriptLine(NamedTuple):
    """A line that was read, or several lines that form one message."""

    number: int
    """number of the first line, or of the message in a JSON document; counts from 1"""
    size_bytes: int
    value: JsonValue
    content: bytes
    """identifies the line: the same line in another file or at another place has the same content"""
    others: tuple[int, ...] = ()
    """numbers of the other lines of the message"""


class ExportOrigin(NamedTuple):
    """What the header of an export says of the exported log."""

    session: str
    created: float
    """time of the session's first entry, seconds since 1970 UTC"""
    first: int
    """first exported position; 0 if unknown"""
    last: int
    """last exported position; 0 if unknown"""
    is_dense: bool
    """whether the export has every position from `first` to `last`. An export of one lane has not"""


class Gatherer(Protocol):
    """Joins lines that form one message. A gatherer may hold lines back, within the bounds of the import."""

    def take(self, line: TranscriptLine) -> Iterable[TranscriptLine]:
        """Add a line, and return the lines that are now complete, in the order to import them."""
        ...

    def end(self) -> Iterable[TranscriptLine]:
        """Return the lines that are still held back at the end of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One transcript format. All functions are pure and take parsed JSON."""

    name: str
    sign: str
    """description of a line of the format, for error texts"""
    recognizes: Callable[[JsonValue], bool]
    """returns whether a line has this format"""
    read: Callable[[JsonValue], TranscriptEntry]
    """reads a line; raises MessageError if the line is invalid"""
    identity: Callable[[JsonValue], bytes] | None = None
    """returns bytes that identify the transcript, given the first recognised line. If None, the bytes of that line
    identify the transcript"""
    tree: tuple[str, str] | None = None
    """for a format with a tree: the fields of a line that hold its id and the id of its parent. A line that stands
    before its parent is then read after it"""
    follows_previous: bool = False
    """whether an entry follows the previous line if its parent is missing. If False, it is a first entry, as for the
    programs that write the format"""
    gather: Callable[[TranscriptBounds], Gatherer] | None = None
    """creates a gatherer for one transcript. None means that each line is a whole message"""
    split: Callable[[Sequence[JsonValue]], Sequence[JsonValue]] | None = None
    """for a format that is one JSON document: returns the messages, given all JSON values of the file. Raises
    MessageError if the values are not one conversation; then nothing is imported. None means one JSON value per line"""
    origin: Callable[[JsonValue], ExportOrigin | None] | None = None
    """for an export: returns what its header says, given the first recognised line. Returns None if that is no
    header"""
