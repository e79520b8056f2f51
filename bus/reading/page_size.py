"""How many entries fit into one reply of the server."""

from __future__ import annotations

from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

__all__ = ("Pager",)

GROWTH = 4
"""Times as many entries as the page before, at most: sizes may change in the middle of a session."""


LARGE_SHARE = 16
"""Of a session that is larger than the budget, a page is about this part of it: more in memory is no faster."""


class Pager:
    """Choose how many entries of each stream to ask for, so that a reply stays below the server's output limit.

    A server closes the connection of a client whose replies outgrow `client-output-buffer-limit`, and would do so again
    for the same question. The first page assumes that each entry is as large as a message may be; later ones go by what
    has come. After a lost answer the budget is halved, down to one entry of one stream.
    """

    def __init__(self, budget_bytes: int, most: int, streams: int = 1) -> None:
        """Take the bytes that a reply should have at most, and the most entries of each stream in it."""
        self._budget, self._most, self._streams = budget_bytes, most, max(streams, 1)
        self.is_apart = False
        """ask for each stream by itself"""
        self.count = min(most, self._safe)
        """entries of each stream to ask for next"""

    def took(self, entries: int, size_bytes: int, held_bytes: int | None = None) -> None:
        """Choose the next count after a page.

        Args:
            entries: how many came, of all streams.
            size_bytes: of their messages' JSON.
            held_bytes: of all messages that there are, if that is known.
        """
        if held_bytes is not None and held_bytes <= self._budget:
            self.count = self._most
        elif entries:
            fitting = self._budget * entries // (LARGE_SHARE * self._streams * max(size_bytes, 1))
            self.count = min(self._most, max(self._safe, min(fitting, self.count * GROWTH)))

    def shrink(self) -> bool:
        """Ask for less, as the answer was lost and may have been too large; False if one entry is all that is asked."""
        if self.count > 1:
            self._budget = max(self._budget // 2, 1)
            self.count = min(self.count // 2, self._safe)
        elif self._streams > 1 and not self.is_apart:
            self.is_apart = True
        else:
            return False
        return True

    @property
    def _safe(self) -> int:
        return max(1, self._budget // (self._streams * MESSAGE_LIMIT_BYTES))
