"""Where a transcript's entries went: from their ids and counts to positions, and along which branch.

An entry is known by its ordinal, its count in the transcript from 0, header and bad lines included, blank lines not.
Memory is a few dozen bytes an entry, whatever its message weighs.
"""

from array import array

from handlers.transcripts.format import TranscriptEntry, Unplaced

__all__ = ("ROOT", "Places")

ROOT = -1
"""The place before the first entry."""


class Places:
    """Grows by `add`, then `advance` for the LLM lane, in the transcript's order.

    `placed` and `failed` tell it what became of an entry. Until then its position counts as unknown, so the import asks
    only once nothing is under way any more.
    """

    def __init__(self) -> None:
        self._positions = array("q")
        self._parents = array("q")
        self._in_llm_lane = bytearray()
        self._ordinals: dict[str, int] = {}
        self._orphans: dict[str, int] = {}
        self._leaf = ROOT

    def add(self, entry: TranscriptEntry | None) -> int:
        """The ordinal of the next entry; None is a line that could not be read."""
        ordinal = len(self._positions)
        parent = ordinal - 1
        if entry is not None and entry.is_in_tree:
            if entry.parent is None:
                parent = ROOT
            elif entry.parent in self._ordinals:
                parent = self._ordinals[entry.parent]
            else:  # its parent's line was bad: the line before stands nearest to where that one was
                self._orphans.setdefault(entry.parent, ordinal)
            if entry.id is not None:
                self._ordinals[entry.id] = ordinal
        self._positions.append(0)
        self._parents.append(parent)
        self._in_llm_lane.append(False)
        return ordinal

    def follows_leaf(self, ordinal: int) -> bool:
        """The entry continues where the log stands, so that no move of the leaf has to come before it."""
        return self._anchor(self._parents[ordinal]) == self._leaf

    def advance(self, ordinal: int) -> int:
        """The entry goes into the LLM lane and the log stands at it. Returns where it stood, for `failed`."""
        before = self._leaf
        self._in_llm_lane[ordinal] = True
        self._leaf = ordinal
        return before

    def placed(self, ordinal: int, position: int) -> None:
        """The entry is in the LLM lane, at this position."""
        self._positions[ordinal] = position

    def failed(self, ordinal: int, before: int) -> None:
        """The entry did not go in; the log stands at `before` if nothing came after it."""
        self._in_llm_lane[ordinal] = False
        if self._leaf == ordinal:
            self._leaf = self._anchor(before)

    def parent_position(self, ordinal: int) -> int | None:
        """Position of the entry that this one follows in its tree; None is the place before the first."""
        return self._position(self._anchor(self._parents[ordinal]))

    def position_of(self, ordinal: int, unplaced: Unplaced) -> int | None:
        """Position of the entry that `unplaced`, itself at `ordinal`, names; None if there is none."""
        if unplaced.kind == "leaf":
            return self._position(self._leaf)
        target = self._find(unplaced.names)
        if unplaced.kind == "entry":
            return None if target is None else self._position(target)
        kept, at = 0, self._parents[ordinal]
        while target is not None and at != ROOT:
            kept = self._positions[at] or kept
            if at == target:
                return kept or None
            at = self._parents[at]
        return None

    def _find(self, name: str | int | None) -> int | None:
        if isinstance(name, str):
            return self._ordinals.get(name, self._orphans.get(name))
        return name

    def _anchor(self, ordinal: int) -> int:
        """The entry itself if the LLM lane has it, else the nearest before it on its branch that it has."""
        while ordinal != ROOT and not self._in_llm_lane[ordinal]:
            ordinal = self._parents[ordinal]
        return ordinal

    def _position(self, ordinal: int) -> int | None:
        return None if ordinal == ROOT else self._positions[ordinal] or None
