"""Choose how many entries to request in one reply."""

from __future__ import annotations

from lanebus.bus.wire.codec import MESSAGE_LIMIT_BYTES

__all__ = ("Pager",)

GROWTH = 4
"""A page may be at most this many times larger than the previous page, because later entries may be larger."""


LARGE_SHARE = 16
"""If a session does not fit into one reply, a page has about the maximum size of a reply divided by this number.
Larger pages are not faster."""


class Pager:
    """Chooses how many entries of each stream to request, so that a reply stays below the server's output limit.

    A server closes the connection of a client whose replies exceed `client-output-buffer-limit`, and would do so again
    for the same request. The first page assumes that each entry has the largest allowed size; later pages use the sizes
    read so far. After a lost reply the next page is at most half as large, down to one entry of one stream.
    """

    def __init__(self, budget_bytes: int, most: int, streams: int = 1) -> None:
        """
        Args:
            budget_bytes: maximum number of bytes of JSON in a reply.
            most: maximum number of entries of each stream in a reply.
            streams: number of streams that one request reads.
        """
        self._budget, self._most, self._streams = budget_bytes, most, max(streams, 1)
        self.is_apart = False
        """whether to request each stream separately"""
        self.count = min(most, self._safe)
        """number of entries of each stream to request next"""

    def took(self, entries: int, size_bytes: int, held_bytes: int | None = None) -> None:
        """Choose the next count from the sizes of the page that was read.

        Args:
            entries: number of entries in the page, over all streams.
            size_bytes: bytes of JSON of these entries.
            held_bytes: bytes of JSON of the whole session; None means unknown.
        """
        if held_bytes is not None and held_bytes <= self._budget:
            self.count = self._most
        elif entries:
            fitting = self._budget * entries // (LARGE_SHARE * self._streams * max(size_bytes, 1))
            self.count = min(self._most, max(self._safe, min(fitting, self.count * GROWTH)))

    def shrink(self) -> bool:
        """Reduce the next count after a lost reply, because the reply may have been too large.

        Return False if the count cannot be reduced further.
        """
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
