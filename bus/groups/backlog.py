"""What a consumer group has to do in some buckets, as far as one consumer knows.

Wake-ups tell of it at once, and a sweep finds what they did not: what was woken before anybody listened, what is due
again, what the silent left, what a lost answer gave. First it is counted, so that no more is taken than there is room
for.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lanebus.bus.groups.group_log import Fetched, GroupLog, Mode
    from lanebus.bus.groups.liveness import Liveness
    from lanebus.bus.groups.work import InFlight, Work
    from lanebus.bus.servers.replies import Calling

__all__ = ("Backlog",)


class Backlog:
    """Work of some buckets that waits for somebody with room."""

    def __init__(
        self, log: GroupLog, hand: InFlight, liveness: Liveness, buckets: Iterable[int], *, sweep_seconds: float
    ) -> None:
        self._log, self._hand, self._liveness, self._every = log, hand, liveness, sweep_seconds
        self._left: dict[int, int] = {}
        self._look_at = dict.fromkeys(buckets, -inf)
        self._holders: dict[int, tuple[str, ...]] = {}
        self._named: dict[int, dict[str, None]] = {}
        self._lost, self._found = 1, 0
        """how often this consumer may have been given what it does not know of; up to which time that was looked for"""
        self._begin_at = -inf

    def __bool__(self) -> bool:
        return bool(self._left)

    @property
    def is_behind(self) -> bool:
        """There may be work that this consumer's name had before it began, or whose answer was lost."""
        return self._found < self._lost

    @property
    def next_look(self) -> float:
        """When a bucket is swept again."""
        return min(self._look_at.values())

    @property
    def is_due(self) -> bool:
        """It is time to sweep."""
        return anyio.current_time() >= self.next_look

    def note(self, bucket: int, session: str) -> None:
        """A wake-up came."""
        self._left[bucket] = self._left.get(bucket, 0) + 1
        named = self._named.setdefault(bucket, {})
        if len(named) < self._log.bounds.named:
            named[session] = None

    def look_by(self, moment: float, buckets: Collection[int] | None = None) -> None:
        """Sweep some buckets, or all, at that moment, if not before."""
        for bucket, at in self._look_at.items():
            if moment < at and (buckets is None or bucket in buckets):
                self._look_at[bucket] = moment

    def begin_again(self) -> None:
        """Look for this consumer's own work again: an answer with some was lost. A fetch under way may miss it."""
        self._lost += 1
        self._left.clear()
        self.look_by(-inf)

    async def sweep(self, link: Calling) -> None:
        """Count what there is in the buckets whose time has come. Raises Unavailable."""
        now = anyio.current_time()
        if now < self.next_look:
            return
        due = [bucket for bucket, at in self._look_at.items() if at <= now + self._log.bounds.together]
        # Before the answer: who puts work off meanwhile may set an earlier time, or lose an answer.
        lost, is_behind = self._lost, self.is_behind
        self._look_at.update(dict.fromkeys(due, now + self._every))
        silent = sorted(self._liveness.silent(now))
        looked = await self._log.fetch(
            link,
            dict.fromkeys(due, 0),
            self._in_hand(due),
            mode="own" if is_behind else "sweep",
            silent=dict.fromkeys(due, silent),
            named={},
        )
        for bucket, each in looked.items():
            self._holders[bucket] = each.holders
            self._liveness.note_holders(each.holders, now)
            self._left.pop(bucket, None)
            self._note_rest(bucket, each, now)
        self._end_own(lost)
        if not is_behind and now >= self._begin_at and any(each.is_more_ours for each in looked.values()):
            self._begin_at = now + self._every  # once in that time, as there may be some that cannot be had
            self.begin_again()

    async def claim(self, link: Calling, most: int) -> list[Work]:
        """Fetch some of what was counted, `most` at most. Raises Unavailable."""
        asked: dict[int, int] = {}
        for bucket, count in self._left.items():
            if most <= 0:
                break
            asked[bucket] = min(count, most)
            most -= asked[bucket]
        if not asked:
            return []
        now = anyio.current_time()
        silent = self._liveness.silent(now)
        of_each = {bucket: sorted(silent & {*self._holders.get(bucket, ())}) for bucket in asked}
        lost = self._lost
        mode: Mode = "own" if self.is_behind else ""
        in_hand = self._in_hand(asked) if mode else {}
        named = {bucket: tuple(self._named.pop(bucket, ()))[:count] for bucket, count in asked.items()}
        fetched = await self._log.fetch(link, asked, in_hand, mode=mode, silent=of_each, named=named)
        works: list[Work] = []
        for bucket, each in fetched.items():
            works += each.works
            self._left.pop(bucket, None)  # at the end of the line, if there is more
            self._note_rest(bucket, each, now)
        self._end_own(lost)
        return self._hand.add(works)

    def _note_rest(self, bucket: int, each: Fetched, now: float) -> None:
        if each.left:
            self._left[bucket] = each.left
        if each.due:  # what is due now was counted
            self.look_by(now + each.due, (bucket,))

    def _end_own(self, lost: int) -> None:
        """All was looked for that was lost by then, if there is no more of it."""
        if self._found < lost and not self._left:
            self._found = lost
            self.look_by(-inf)

    def _in_hand(self, buckets: Iterable[int]) -> dict[int, tuple[str, ...]]:
        return {bucket: self._hand.sessions(bucket) for bucket in buckets}
