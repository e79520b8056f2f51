"""Count the work items that wait in some buckets, and claim as many as the consumer has room for.

Wake-ups announce new work. A sweep finds all other work: sessions woken before this consumer listened, delayed work
that is due, work items of silent consumers, and work items that were delivered in a reply that never arrived.
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
    """The known number of work items that wait in some buckets, and the times of the next sweeps."""

    def __init__(
        self, log: GroupLog, in_flight: InFlight, liveness: Liveness, buckets: Iterable[int], *, sweep_seconds: float
    ) -> None:
        self._log, self._in_flight, self._liveness, self._sweep_seconds = log, in_flight, liveness, sweep_seconds
        self._available: dict[int, int] = {}
        self._sweep_at = dict.fromkeys(buckets, -inf)
        self._holders: dict[int, tuple[str, ...]] = {}
        self._named: dict[int, dict[str, None]] = {}
        self._losses, self._recovered = 1, 0
        """number of possibly lost replies with work items, and number of these losses after which the work items were
        fetched again. The first loss stands for an earlier process that may have left work items under this name"""
        self._recover_at = -inf

    def __bool__(self) -> bool:
        return bool(self._available)

    @property
    def is_recovering(self) -> bool:
        """Whether the server may have assigned work items to this consumer's name that this process does not know."""
        return self._recovered < self._losses

    @property
    def next_sweep(self) -> float:
        """Time of the next sweep, on the event loop's clock."""
        return min(self._sweep_at.values())

    @property
    def is_due(self) -> bool:
        """Whether a bucket has to be swept now."""
        return anyio.current_time() >= self.next_sweep

    def note(self, bucket: int, session: str) -> None:
        """Count a wake-up and remember its session."""
        self._available[bucket] = self._available.get(bucket, 0) + 1
        named = self._named.setdefault(bucket, {})
        if len(named) < self._log.bounds.named:
            named[session] = None

    def sweep_by(self, moment: float, buckets: Collection[int] | None = None) -> None:
        """Schedule the next sweep of some buckets, or of all (None), at the time `moment` or earlier."""
        for bucket, at in self._sweep_at.items():
            if moment < at and (buckets is None or bucket in buckets):
                self._sweep_at[bucket] = moment

    def recover(self) -> None:
        """Fetch this consumer's own work items again, because a reply may have been lost.

        A fetch that is already in flight does not end the recovery.
        """
        self._losses += 1
        self._available.clear()
        self.sweep_by(-inf)

    async def sweep(self, connection: Calling) -> None:
        """Count the work items of every bucket whose sweep is due. Raises Unavailable."""
        now = anyio.current_time()
        if now < self.next_sweep:
            return
        due = [bucket for bucket, at in self._sweep_at.items() if at <= now + self._log.bounds.together]
        # Set before the reply arrives: `nack` may ask for an earlier sweep in the meantime, or may lose its own reply.
        losses, is_recovering = self._losses, self.is_recovering
        self._sweep_at.update(dict.fromkeys(due, now + self._sweep_seconds))
        silent = sorted(self._liveness.silent(now))
        swept = await self._log.fetch(
            connection,
            dict.fromkeys(due, 0),
            self._held(due),
            mode="own" if is_recovering else "sweep",
            silent=dict.fromkeys(due, silent),
            named={},
        )
        for bucket, fetched in swept.items():
            self._holders[bucket] = fetched.holders
            self._liveness.note_holders(fetched.holders, now)
            self._available.pop(bucket, None)
            self._note_remaining(bucket, fetched, now)
        self._end_recovery(losses)
        if not is_recovering and now >= self._recover_at and any(fetched.has_unheld for fetched in swept.values()):
            # At most once per sweep period: a work item that can never be fetched would start a recovery in every
            # sweep.
            self._recover_at = now + self._sweep_seconds
            self.recover()

    async def claim(self, connection: Calling, limit: int) -> list[Work]:
        """Fetch up to `limit` of the counted work items. Raises Unavailable."""
        limits: dict[int, int] = {}
        for bucket, count in self._available.items():
            if limit <= 0:
                break
            limits[bucket] = min(count, limit)
            limit -= limits[bucket]
        if not limits:
            return []
        now = anyio.current_time()
        silent = self._liveness.silent(now)
        silent_holders = {bucket: sorted(silent & {*self._holders.get(bucket, ())}) for bucket in limits}
        losses = self._losses
        mode: Mode = "own" if self.is_recovering else ""
        held = self._held(limits) if mode else {}
        named = {bucket: tuple(self._named.pop(bucket, ()))[:count] for bucket, count in limits.items()}
        replies = await self._log.fetch(connection, limits, held, mode=mode, silent=silent_holders, named=named)
        works: list[Work] = []
        for bucket, fetched in replies.items():
            works += fetched.works
            self._available.pop(bucket, None)  # a bucket with more work is added again as the last: buckets take turns
            self._note_remaining(bucket, fetched, now)
        self._end_recovery(losses)
        return self._in_flight.add(works)

    def _note_remaining(self, bucket: int, fetched: Fetched, now: float) -> None:
        if fetched.remaining:
            self._available[bucket] = fetched.remaining
        if fetched.due:  # 0 means that the delayed work is due now and was counted
            self.sweep_by(now + fetched.due, (bucket,))

    def _end_recovery(self, losses: int) -> None:
        """If no counted work is left, mark the first `losses` losses as recovered."""
        if self._recovered < losses and not self._available:
            self._recovered = losses
            self.sweep_by(-inf)

    def _held(self, buckets: Iterable[int]) -> dict[int, tuple[str, ...]]:
        return {bucket: self._in_flight.sessions(bucket) for bucket in buckets}
