"""Map the positions of entries in an exported log to the positions of the same entries in the importing session."""

from array import array
from bisect import bisect_left, bisect_right

__all__ = ("PositionMap",)


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
