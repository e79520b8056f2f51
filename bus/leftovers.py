"""What a consumer group has to do beside what is new: its own from before, what the dead left, what is due again."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bus.group_log import Calling, GroupLog
    from bus.work import Hand, Work

__all__ = ("Leftovers",)

SWEEP_SECONDS = 5.0
"""How often all buckets are looked through while nobody falls silent and nothing is due that this consumer knows of."""

FORGET_IDLE_SECONDS = 600.0
"""After how long a consumer's name is taken out of a bucket's group; only one with nothing pending ever is."""

FORGET_EVERY_SECONDS = 60.0


class Leftovers:
    """Work of some buckets that is not new. First it is counted, so that no more is taken than there is room for."""

    def __init__(self, log: GroupLog, hand: Hand, buckets: Iterable[int]) -> None:
        self._log, self._hand, self._buckets = log, hand, tuple(buckets)
        self._left: dict[int, int] = {}
        self._sweep_at, self._forget_at = -inf, -inf
        self.is_behind = True
        """there may be some that was pending with this consumer before it began, or whose answer was lost"""

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def sweep_at(self) -> float:
        """When the buckets are looked through again."""
        return self._sweep_at

    def sweep_by(self, moment: float) -> None:
        """Look through the buckets at that moment, if not before."""
        self._sweep_at = min(self._sweep_at, moment)

    def begin_again(self) -> None:
        """An answer was lost, and what it gave is pending with this consumer."""
        self.is_behind, self._sweep_at = True, -inf

    async def sweep(self, link: Calling) -> None:
        """Count what there is, if it is time to. Raises Unavailable."""
        now = anyio.current_time()
        if now < self._sweep_at:
            return
        is_forgetting = now >= self._forget_at
        looked = await self._log.look(
            link,
            dict.fromkeys(self._buckets, 0),
            self._in_hand(self._buckets),
            own=self.is_behind,
            note=True,
            forget_idle=FORGET_IDLE_SECONDS if is_forgetting else None,
        )
        if is_forgetting:
            self._forget_at = now + FORGET_EVERY_SECONDS
        self._sweep_at = now + SWEEP_SECONDS
        self._left = {bucket: each.left for bucket, each in looked.items() if each.left}
        for each in looked.values():
            if each.due:  # what is due now was counted
                self.sweep_by(now + each.due)
        self.is_behind = self.is_behind and bool(self._left)

    async def claim(self, link: Calling, most: int) -> list[Work]:
        """Take some of what was counted, `most` at most. Raises Unavailable."""
        asked: dict[int, int] = {}
        for bucket, count in self._left.items():
            if most <= 0:
                break
            asked[bucket] = min(count, most)
            most -= asked[bucket]
        if not asked:
            return []
        looked = await self._log.look(link, asked, self._in_hand(asked), own=self.is_behind)
        works: list[Work] = []
        for bucket, each in looked.items():
            works += each.works
            self._left.pop(bucket)
            if each.left:
                self._left[bucket] = each.left  # at the end of the line
        if not self._left and self.is_behind:
            self._sweep_at = -inf  # a page may not have been all
        return self._hand.add(works)

    def _in_hand(self, buckets: Iterable[int]) -> dict[int, tuple[str, ...]]:
        return {bucket: self._hand.pointers(bucket) for bucket in buckets}
