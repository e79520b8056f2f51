"""Where a transcript's entries went: from their ids and counts to positions, and along which branch.

An entry is known by its ordinal, its count in the transcript from 0, header and bad lines included, blank lines not.
Memory is a few dozen bytes an entry, whatever its message weighs.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from lanebus.bus.messages.context_entry import LeafMove
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.transcripts.errors import CyclicTree, UnknownEntry
from lanebus.handlers.transcripts.format import Moved, TranscriptEntry, Unplaced
from lanebus.handlers.transcripts.position_map import Moves

__all__ = ("LEFT_LABEL", "ROOT", "Places", "Put")

ROOT = -1
"""The place before the first entry."""

LEFT_LABEL = "import.label"
"""the kind of a label that has lost its entry, and left the LLM lane"""


class Put(NamedTuple):
    """What an entry becomes in the log."""

    messages: tuple[Publishable, ...]
    """a move of the leaf first, where the entry does not continue where the log stood"""
    own: tuple[int, ...]
    """which of them are the entry's own in the LLM lane; none if it is of the extension lane"""
    before: int
    """where the log stood, for `failed`"""

    @property
    def has_left_lane(self) -> bool:
        """It was of the LLM lane and is not any more: its neighbours stand for it."""
        return any(isinstance(each, ExtensionMessage) and each.kind == LEFT_LABEL for each in self.messages)


class Places:
    """Grows by `add`, then `put`, in the transcript's order.

    `placed` and `failed` tell it what became of an entry. Until then its position counts as unknown, so the import asks
    only once nothing is under way any more.
    """

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._parents = array("q")
        self._in_llm_lane = bytearray()
        self._ordinals: dict[str, int] = {}
        self._orphans: dict[str, list[int]] = {}
        self._leaf = ROOT
        self._has_bad = False
        self.moves = Moves()
        """of an export: from the positions that entries had to those that they have"""

    def add(self, entry: TranscriptEntry | None) -> int:
        """The ordinal of the next entry; None is a line that could not be read.

        Raises:
            CyclicTree: the entry is one of those before itself. It was not added.
        """
        ordinal = len(self._lasts)
        parent = ordinal - 1
        if entry is None:
            self._has_bad = True
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

    def needs_positions(self, ordinal: int, entry: TranscriptEntry) -> bool:
        """What the entry becomes depends on where others went."""
        message = entry.message
        return isinstance(message, Unplaced | Moved) or (message.lane is Lane.LLM and not self._follows_leaf(ordinal))

    def put(self, ordinal: int, entry: TranscriptEntry) -> Put:
        """What the entry becomes, as the log stands; with it in the LLM lane the log stands at it."""
        before, message = self._leaf, entry.message
        if isinstance(message, Moved):
            message = message.place(self.moves)
        if isinstance(message, Unplaced):
            names, message = message.names, message.place(self.position_of(ordinal, message))
            if isinstance(message, LeafMove):
                # It is no entry of the tree: what names it as its parent continues where it led.
                self._parents[ordinal] = ROOT if message.to is None else self._known(names)
                self._leaf = self._anchor(self._parents[ordinal])
                return Put((message,), (), before)
        said = (message, *entry.also)
        own = tuple(at for at, part in enumerate(said) if part.lane is Lane.LLM)
        if not own:
            return Put(said, own, before)
        if not self._follows_leaf(ordinal):
            move = LeafMove(to=self._position(self._anchor(self._parents[ordinal])))
            said, own = (move, *said), tuple(at + 1 for at in own)
        self._in_llm_lane[ordinal] = True
        self._leaf = ordinal
        return Put(said, own, before)

    def placed(self, ordinal: int, positions: Sequence[int]) -> None:
        """The entry is in the LLM lane, at these positions."""
        self._firsts[ordinal], self._lasts[ordinal] = positions[0], positions[-1]

    def failed(self, ordinal: int, before: int) -> None:
        """The entry did not go in; the log stands at `before` if nothing came after it."""
        self._in_llm_lane[ordinal] = False
        if self._leaf == ordinal:
            self._leaf = self._anchor(before)

    def position_of(self, ordinal: int, unplaced: Unplaced) -> int | None:
        """Position of the entry that `unplaced`, itself at `ordinal`, names; None if there is none."""
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

    def standing_at(self, name: str) -> int:
        """Position that the log stands at where the entry of this id is the last; 0 is before the first.

        Raises:
            UnknownEntry: no entry has this id.
        """
        return self._position(self._anchor(self._known(name))) or 0

    def _parent_of(self, entry: TranscriptEntry, ordinal: int) -> int:
        parent = self._parent(entry, ordinal)
        if entry.id is not None:
            # Only who was waited for can close a loop.
            waiting = {*self._orphans.get(entry.id, ())}
            at = parent if waiting else ROOT
            while at != ROOT and at not in waiting:
                at = self._parents[at]
            if at != ROOT or entry.id == entry.parent:
                raise CyclicTree(entry.id)
        if entry.parent is not None and entry.parent not in self._ordinals:
            self._orphans.setdefault(entry.parent, []).append(ordinal)
        return parent

    def _parent(self, entry: TranscriptEntry, ordinal: int) -> int:
        if entry.parent is None:
            return ROOT
        if entry.parent in self._ordinals:
            return self._ordinals[entry.parent]
        # Its line was bad, and the line before stands nearest to where that one was. Or it was never there, and then
        # nothing is known of what this one continues.
        return ordinal - 1 if self._has_bad else ROOT

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
        """The entry itself if the LLM lane has it, else the nearest before it on its branch that it has."""
        while ordinal != ROOT and not self._in_llm_lane[ordinal]:
            ordinal = self._parents[ordinal]
        return ordinal

    def _position(self, ordinal: int) -> int | None:
        return None if ordinal == ROOT else self._lasts[ordinal] or None
