"""Place a transcript's entries in the tree of the importing session."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import ExtensionMessage, Lane, LeafMove, Publishable
from lanebus.handlers.formats.transcript import Moved, PositionMap, TranscriptEntry, Unplaced

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
