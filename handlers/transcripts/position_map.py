"""Where the entries of an exported log went: from the positions they had to those that they have now."""

from array import array
from bisect import bisect_left, bisect_right

__all__ = ("Moves",)


class Moves:
    """Grows by `note`, in the order of the old positions. Seventeen bytes an entry, whatever its message weighs."""

    def __init__(self) -> None:
        self._old = array("q")
        self._new = array("q")
        self._is_llm = bytearray()

    def note(self, old: int, new: int, *, is_llm: bool) -> None:
        """An entry went in. One that comes out of order is passed over: nothing can name it."""
        if not self._old or old > self._old[-1]:
            self._old.append(old)
            self._new.append(new)
            self._is_llm.append(is_llm)

    def lose(self, old: int) -> None:
        """An entry of the LLM lane was there, and could not go in."""
        self.note(old, 0, is_llm=False)

    def of(self, old: int) -> int | None:
        """Where the entry is now; None if it is not there."""
        return self._at(old) or None

    def is_lost(self, old: int) -> bool:
        """The entry could not go in: its neighbours stand for it."""
        return self._at(old) == 0

    def last_llm(self) -> int | None:
        """Where the last entry of the LLM lane is now; None if there is none."""
        return self._nearest(range(len(self._old) - 1, -1, -1))

    def llm_at_or_before(self, old: int) -> int | None:
        """Where the last entry of the LLM lane up to that one is now; None if there is none."""
        return self._nearest(range(bisect_right(self._old, old) - 1, -1, -1))

    def llm_at_or_after(self, old: int) -> int | None:
        """Where the first entry of the LLM lane from that one on is now; None if there is none."""
        return self._nearest(range(bisect_left(self._old, old), len(self._old)))

    def _at(self, old: int) -> int | None:
        index = bisect_left(self._old, old)
        return self._new[index] if index < len(self._old) and self._old[index] == old else None

    def _nearest(self, indices: range) -> int | None:
        return next((self._new[index] for index in indices if self._is_llm[index]), None)
