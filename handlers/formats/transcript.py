"""What a transcript format provides, what bounds an import, and where its entries go in the session's tree."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError, check_bounds
from lanebus.bus.messages import DEFAULT_JSON_BOUNDS, ExtensionMessage, JsonBounds, Lane, LeafMove, Publishable

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_datetime(text: str, path: str, standard: str = "ISO 8601") -> datetime:
    """Parse a date and time in ISO 8601. The result has a time zone only if the text names one.

    Args:
        text: the text to parse.
        path: path of the value, for the error.
        standard: name of the expected form, for the error.

    Raises:
        DecodeError: the text is not a date and time in ISO 8601.
    """
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise DecodeError(path, f"{text[:40]!r} is no moment in {standard}") from None


def milliseconds_of(moment: datetime) -> int:
    """Return a moment in milliseconds UTC, rounded down. A moment without a time zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # Integer division: timestamp() is a float, which may round to the previous millisecond.
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def datetime_of(milliseconds: int) -> datetime:
    """Return the moment in UTC. Raise OverflowError if datetime cannot represent it."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


# What a transcript format provides, what bounds an import, and how old positions map to new ones.


class PositionMap:
    """Maps old positions to new positions. Call `note` in the order of old positions. Takes 17 bytes per entry."""

    def __init__(self) -> None:
        self._old = array("q")
        self._new = array("q")
        self._is_llm = bytearray()

    def note(self, old: int, new: int, *, is_llm: bool) -> None:
        """Add an imported entry. An entry that is not in the order of old positions is ignored."""
        if not self._old or old > self._old[-1]:
            self._old.append(old)
            self._new.append(new)
            self._is_llm.append(is_llm)

    def lose(self, old: int) -> None:
        """Add an entry of the LLM lane that could not be imported."""
        self.note(old, 0, is_llm=False)

    def of(self, old: int) -> int | None:
        """Return the new position of an entry, or None if it was not imported."""
        return self._at(old) or None

    def is_lost(self, old: int) -> bool:
        """Whether the entry was passed to `lose`. References to such an entry are changed to a neighbour."""
        return self._at(old) == 0

    def last_llm(self) -> int | None:
        """Return the new position of the last entry of the LLM lane, or None."""
        return self._nearest(range(len(self._old) - 1, -1, -1))

    def llm_at_or_before(self, old: int) -> int | None:
        """Return the new position of the last LLM-lane entry at or before an old position, or None."""
        return self._nearest(range(bisect_right(self._old, old) - 1, -1, -1))

    def llm_at_or_after(self, old: int) -> int | None:
        """Return the new position of the first LLM-lane entry at or after an old position, or None."""
        return self._nearest(range(bisect_left(self._old, old), len(self._old)))

    def _at(self, old: int) -> int | None:
        index = bisect_left(self._old, old)
        return self._new[index] if index < len(self._old) and self._old[index] == old else None

    def _nearest(self, indices: range) -> int | None:
        return next((self._new[index] for index in indices if self._is_llm[index]), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBounds:
    """Bounds on the part of a transcript that is in memory, or in flight to the log, at a time."""

    batch_bytes: int = 1_048_576
    """bytes of the file read at a time"""
    batch_lines: int = 512
    """lines of the file read at a time"""
    lines_to_detect: int = 100
    """number of lines at the start of the file, without blank lines, that are searched to detect the format"""
    publishes_in_flight: int = 64
    """maximum number of publishes in flight"""
    bytes_in_flight: int = 16 * 1_048_576
    """maximum number of bytes of lines in flight"""
    waiting_lines: int = 256
    """maximum number of lines held back until the parent of the first of them is read. Claude Code: as many until an
    answer is complete. No known answer needs this many"""
    waiting_bytes: int = 8 * 1_048_576
    """maximum number of bytes of the lines held back, for a parent and for an answer"""
    recent_answers: int = 64
    """Claude Code: number of recent answers that are remembered, so that tool results further down can be moved to
    them"""

    json: JsonBounds = DEFAULT_JSON_BOUNDS
    """how much memory the values of a line, or of a file that is one JSON document, may take"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("bytes_in_flight", "waiting_lines", "waiting_bytes"))


DEFAULT_TRANSCRIPT_BOUNDS = TranscriptBounds()


# The interface of a transcript format: the functions that recognise and read the format's lines.


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


def milliseconds(value: JsonValue, path: str) -> int | None:
    """Return a timestamp in milliseconds UTC, or None for null.

    Args:
        value: milliseconds UTC, or ISO 8601 text. Text without a time zone is UTC.
        path: path of the value in the line, for errors.

    Raises:
        DecodeError: `value` is neither a number nor valid ISO 8601 text.
    """
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value)
    if isinstance(value, str):
        return milliseconds_of(parse_datetime(value, path))
    raise DecodeError(path, "wants milliseconds or ISO 8601 text")


# Place a transcript's entries in the tree of the importing session.


# Track the positions and branches of a transcript's entries during an import.
#
# An entry is identified by its ordinal, which counts entries from 0. The header and bad lines have ordinals too; blank
# lines have none. An entry takes a few dozen bytes of memory, regardless of its message.

ROOT = -1
"""The ordinal of the place before the first entry."""

LEFT_LABEL = "import.label"
"""kind of the extension message that replaces a label whose target is missing"""


class Put(NamedTuple):
    """The messages that an entry becomes in the log."""

    messages: tuple[Publishable, ...]
    """messages to publish. The first is a leaf move if the entry does not follow the current leaf"""
    own: tuple[int, ...]
    """indexes in `messages` of the entry's own messages that are in the LLM lane; may be empty"""
    before: int
    """ordinal of the leaf before `put` was called. Pass it to `failed`"""

    @property
    def has_left_lane(self) -> bool:
        """Whether a label became an extension message. References to the entry of the label are then
        changed to a neighbour."""
        return any(isinstance(each, ExtensionMessage) and each.kind == LEFT_LABEL for each in self.messages)


class TreePlacement:
    """Maps entries to positions. Call `add`, then `put`, for each entry in the transcript's order.

    Report the outcome of the publish with `placed` or `failed`. An entry's position is unknown until then. So if
    `needs_positions` is true for an entry, the import waits for all publishes in flight before it calls `put`.
    """

    def __init__(self, *, follows_previous: bool = False) -> None:
        """
        Args:
            follows_previous: see `Format.follows_previous`.
        """
        self._follows_previous = follows_previous
        """whether the previous line is the best guess for a parent that is missing"""
        self._firsts = array("q")
        self._lasts = array("q")
        self._parents = array("q")
        self._in_llm_lane = bytearray()
        self._ordinals: dict[str, int] = {}
        self._orphans: dict[str, list[int]] = {}
        self._orphaned: set[int] = set()
        self._leaf = ROOT
        self.position_map = PositionMap()
        """for an export: maps old positions to new positions"""

    def add(self, entry: TranscriptEntry | None) -> int:
        """Add the next entry and return its ordinal. Pass None for a line that could not be read.

        Raises:
            CyclicTree: the parents of the entry lead back to the entry itself. The entry was not added.
        """
        ordinal = len(self._lasts)
        parent = ordinal - 1
        if entry is None:
            self._follows_previous = True  # the bad line may have been the parent of those that have none
        else:
            if entry.is_in_tree:
                parent = self._parent_of(entry, ordinal)
            if entry.id is not None:
                self._ordinals[entry.id] = ordinal
        self._firsts.append(0)
        self._lasts.append(0)
        self._parents.append(parent)
        self._in_llm_lane.append(False)
        return ordinal

    def is_orphan(self, ordinal: int) -> bool:
        """Whether the parent of an entry is missing."""
        return ordinal in self._orphaned

    def needs_positions(self, ordinal: int, entry: TranscriptEntry) -> bool:
        """Whether the messages of the entry depend on the positions of other entries."""
        message = entry.message
        return isinstance(message, Unplaced | Moved) or (message.lane is Lane.LLM and not self._follows_leaf(ordinal))

    def put(self, ordinal: int, entry: TranscriptEntry) -> Put:
        """Place the entry, and return the messages that it becomes.

        An entry with a message of the LLM lane becomes the leaf. A leaf move makes its target the leaf.
        """
        before, message = self._leaf, entry.message
        if isinstance(message, Moved):
            message = message.place(self.position_map)
        if isinstance(message, Unplaced):
            names, message = message.names, message.place(self.position_of(ordinal, message))
            if isinstance(message, LeafMove):
                # A leaf move is not an entry of the tree. The children of the move follow the entry that it leads to.
                self._parents[ordinal] = ROOT if message.to is None else self._known(names)
                self._leaf = self._anchor(self._parents[ordinal])
                return Put((message,), (), before)
        messages = (message, *entry.also)
        own = tuple(at for at, part in enumerate(messages) if part.lane is Lane.LLM)
        if not own:
            return Put(messages, own, before)
        if not self._follows_leaf(ordinal):
            move = LeafMove(to=self._position(self._anchor(self._parents[ordinal])))
            messages, own = (move, *messages), tuple(at + 1 for at in own)
        self._in_llm_lane[ordinal] = True
        self._leaf = ordinal
        return Put(messages, own, before)

    def placed(self, ordinal: int, positions: Sequence[int]) -> None:
        """Report that the entry's LLM-lane messages are in the log, at these positions."""
        self._firsts[ordinal], self._lasts[ordinal] = positions[0], positions[-1]

    def failed(self, ordinal: int, before: int) -> None:
        """Report that the entry was not published. If the entry is the leaf, `before` becomes the leaf again.

        Args:
            ordinal: the entry.
            before: ordinal of the leaf before the entry; see `Put.before`.
        """
        self._in_llm_lane[ordinal] = False
        if self._leaf == ordinal:
            self._leaf = self._anchor(before)

    def position_of(self, ordinal: int, unplaced: Unplaced) -> int | None:
        """Return the position to pass to `unplaced.place`; None if there is no such position.

        Args:
            ordinal: the entry that refers to another entry.
            unplaced: the message of the entry `ordinal`.
        """
        if unplaced.kind == "leaf":
            return self._position(self._leaf)
        target = self._find(unplaced.names)
        if unplaced.kind == "stand":
            if unplaced.names is None:
                return 0
            return None if target is None else self._position(self._anchor(target)) or 0
        if unplaced.kind == "entry":
            return None if target is None else self._position(target)
        kept, at = 0, self._parents[ordinal]
        while target is not None and at != ROOT:
            kept = self._firsts[at] or kept
            if at == target:
                return kept or None
            at = self._parents[at]
        return None

    def leaf_at(self, name: str) -> int:
        """Return the leaf position with which to build the context at the entry with id `name`.

        0 is the place before the first entry.

        Raises:
            UnknownEntry: no entry has this id.
        """
        return self._position(self._anchor(self._known(name))) or 0

    def _parent_of(self, entry: TranscriptEntry, ordinal: int) -> int:
        parent = self._parent(entry, ordinal)
        if entry.id is not None:
            # Only an entry that an earlier entry names as its parent can close a cycle.
            waiting = {*self._orphans.get(entry.id, ())}
            at = parent if waiting and entry.parent in self._ordinals else ROOT
            while at != ROOT and at not in waiting:
                at = ROOT if at in self._orphaned else self._parents[at]
            if at != ROOT or entry.id == entry.parent:
                raise CyclicTree(entry.id)
        if entry.parent is not None and entry.parent not in self._ordinals:
            self._orphans.setdefault(entry.parent, []).append(ordinal)
            self._orphaned.add(ordinal)
        return parent

    def _parent(self, entry: TranscriptEntry, ordinal: int) -> int:
        if entry.parent is None:
            return ROOT
        return self._ordinals.get(entry.parent, ordinal - 1 if self._follows_previous else ROOT)

    def _find(self, name: str | int | None) -> int | None:
        if isinstance(name, str):
            return self._ordinals.get(name, *self._orphans.get(name, ())[:1])
        return name

    def _known(self, name: str | int | None) -> int:
        ordinal = self._find(name)
        if ordinal is None:
            raise UnknownEntry(str(name))
        return ordinal

    def _follows_leaf(self, ordinal: int) -> bool:
        return self._anchor(self._parents[ordinal]) == self._leaf

    def _anchor(self, ordinal: int) -> int:
        """Return the entry itself if it is in the LLM lane, or else its nearest ancestor in the LLM lane."""
        while ordinal != ROOT and not self._in_llm_lane[ordinal]:
            ordinal = self._parents[ordinal]
        return ordinal

    def _position(self, ordinal: int) -> int | None:
        return None if ordinal == ROOT else self._lasts[ordinal] or None


# Errors in the tree of a transcript's entries.


class CyclicTree(MessageError):
    """The parents of an entry lead back to the entry itself. Fields: `entry`, the entry's id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the parents of entry {entry[:80]!r} lead back to it", "correct its parent in the transcript")
        self.entry = entry


class UnknownEntry(MessageError):
    """No entry of the transcript has this id. Fields: `entry`, the id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the transcript has no entry {entry[:80]!r}")
        self.entry = entry
