"""What a consumer group has to do beside what is new: its own from before, what the dead left, what is due again."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bus.group_log import Calling, GroupLog
    from bus.work import Hand, Work

__all__ = ("Leftovers",)

SWEEP_SECONDS = 5.0
"""How often all buckets are looked through while nobody falls silent and nothing is due that this consumer knows of."""

SOON_SECONDS = 0.02
"""Buckets whose time comes so soon are looked into together."""

FORGET_IDLE_SECONDS = 600.0
"""After how long a consumer's name is taken out of a bucket's group; only one with nothing pending ever is."""

FORGET_EVERY_SECONDS = 60.0


class Leftovers:
    """Work of some buckets that is not new. First it is counted, so that no more is taken than there is room for."""

    def __init__(self, log: GroupLog, hand: Hand, buckets: Iterable[int]) -> None:
        self._log, self._hand = log, hand
        self._left: dict[int, int] = {}
        self._look_at = dict.fromkeys(buckets, -inf)
        self._forget_at = -inf
        self.is_behind = True
        """there may be some that was pending with this consumer before it began, or whose answer was lost"""

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def next_look(self) -> float:
        """When a bucket is looked into again."""
        return min(self._look_at.values())

    def look_by(self, moment: float, buckets: Collection[int] | None = None) -> None:
        """Look into some buckets, or all, at that moment, if not before."""
        for bucket, at in self._look_at.items():
            if moment < at and (buckets is None or bucket in buckets):
                self._look_at[bucket] = moment

    def begin_again(self) -> None:
        """An answer was lost, and what it gave is pending with this consumer."""
        self.is_behind = True
        self.look_by(-inf)

    async def sweep(self, link: Calling) -> None:
        """Count what there is in the buckets whose time has come. Raises Unavailable."""
        now = anyio.current_time()
        if now < self.next_look:
            return
        due = [bucket for bucket, at in self._look_at.items() if at <= now + SOON_SECONDS]
        # Before the answer: who puts work off meanwhile may set an earlier time.
        self._look_at.update(dict.fromkeys(due, now + SWEEP_SECONDS))
        is_forgetting = now >= self._forget_at
        looked = await self._log.look(
            link,
            dict.fromkeys(due, 0),
            self._in_hand(due),
            own=self.is_behind,
            note=True,
            forget_idle=FORGET_IDLE_SECONDS if is_forgetting else None,
        )
        if is_forgetting and len(due) == len(self._look_at):
            self._forget_at = now + FORGET_EVERY_SECONDS
        for bucket, each in looked.items():
            if each.due:  # what is due now was counted
                self.look_by(now + each.due, (bucket,))
            self._left.pop(bucket, None)
            if each.left:
                self._left[bucket] = each.left
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
        now = anyio.current_time()
        looked = await self._log.look(link, asked, self._in_hand(asked), own=self.is_behind)
        works: list[Work] = []
        for bucket, each in looked.items():
            works += each.works
            if each.due:  # behind what was due already, of which alone the count told
                self.look_by(now + each.due, (bucket,))
            self._left.pop(bucket)
            if each.left:
                self._left[bucket] = each.left  # at the end of the line
        if not self._left and self.is_behind:
            self.look_by(-inf)  # a page may not have been all
        return self._hand.add(works)

    def _in_hand(self, buckets: Iterable[int]) -> dict[int, tuple[str, ...]]:
        return {bucket: self._hand.pointers(bucket) for bucket in buckets}
