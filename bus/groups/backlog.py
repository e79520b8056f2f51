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
    from lanebus.bus.wire.keys import AgentBucket

__all__ = ("Backlog",)


class Backlog:
    """Counts the waiting work items of some buckets from sweeps and wake-ups, and schedules the sweeps."""

    def __init__(
        self,
        log: GroupLog,
        in_flight: InFlight,
        liveness: Liveness,
        places: Iterable[AgentBucket],
        *,
        sweep_seconds: float,
    ) -> None:
        self._log, self._in_flight, self._liveness, self._sweep_seconds = log, in_flight, liveness, sweep_seconds
        self._available: dict[AgentBucket, int] = {}
        self._sweep_at = dict.fromkeys(places, -inf)
        self._holders: dict[AgentBucket, tuple[str, ...]] = {}
        self._named: dict[AgentBucket, dict[str, None]] = {}
        self._losses, self._recovered = 1, 0
        """number of replies with work items that may be lost, and the number of such losses from which the consumer has
        recovered. The first loss stands for an earlier process that may have left work items under this name"""
        self._recover_at = -inf

    def __bool__(self) -> bool:
        return bool(self._available)

    @property
    def is_recovering(self) -> bool:
        """Whether this consumer may have work items at the server that this process does not know."""
        return self._recovered < self._losses

    @property
    def next_sweep(self) -> float:
        """Time of the next sweep, on the event loop's clock."""
        return min(self._sweep_at.values())

    @property
    def is_due(self) -> bool:
        """Whether a bucket has to be swept now."""
        return anyio.current_time() >= self.next_sweep

    def note(self, place: AgentBucket, session: str) -> None:
        """Count a wake-up and remember its session. Ignore a wake-up for an agent that the consumer does not serve."""
        if place not in self._sweep_at:
            return
        self._available[place] = self._available.get(place, 0) + 1
        named = self._named.setdefault(place, {})
        if len(named) < self._log.bounds.named_sessions:
            named[session] = None

    def sweep_by(self, moment: float, places: Collection[AgentBucket] | None = None) -> None:
        """Sweep `places`, pairs of agent and bucket, no later than `moment`. None means all pairs."""
        for place, at in self._sweep_at.items():
            if moment < at and (places is None or place in places):
                self._sweep_at[place] = moment

    def recover(self) -> None:
        """Schedule another fetch of this consumer's own work items, because a reply may have been lost.

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
        due = [place for place, at in self._sweep_at.items() if at <= now + self._log.bounds.sweep_window_seconds]
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
        for place, fetched in swept.items():
            self._holders[place] = fetched.holders
            self._liveness.note_holders(fetched.holders, now)
            self._note_remaining(place, fetched, now)
        self._end_recovery(losses)
        if not is_recovering and now >= self._recover_at and any(fetched.has_unheld for fetched in swept.values()):
            # At most once per sweep period: a work item that can never be fetched would start a recovery in every
            # sweep.
            self._recover_at = now + self._sweep_seconds
            self.recover()

    async def claim(self, connection: Calling, limit: int) -> list[Work]:
        """Fetch up to `limit` of the counted work items. Raises Unavailable."""
        limits = self._take_turns(limit)
        if not limits:
            return []
        now = anyio.current_time()
        silent = self._liveness.silent(now)
        silent_holders = {place: sorted(silent & {*self._holders.get(place, ())}) for place in limits}
        losses = self._losses
        mode: Mode = "own" if self.is_recovering else ""
        held = self._held(limits) if mode else {}
        named = {place: tuple(self._named.pop(place, ()))[:count] for place, count in limits.items()}
        replies = await self._log.fetch(
            connection, limits, held, mode=mode, silent=silent_holders, named=named, tenants=self._in_flight.tenants()
        )
        works: list[Work] = []
        for place, fetched in replies.items():
            works += fetched.works
            self._available.pop(place, None)  # re-inserted last if it has more, so that all take turns
            self._note_remaining(place, fetched, now)
        self._end_recovery(losses)
        return self._in_flight.add(works)

    def _take_turns(self, limit: int) -> dict[AgentBucket, int]:
        """Divide `limit` among agents and buckets: one work item for each in turn, as long as work items are left."""
        limits: dict[AgentBucket, int] = {}
        left = dict(self._available)
        while left and limit > 0:
            for place in list(left)[:limit]:
                limits[place] = limits.get(place, 0) + 1
                limit -= 1
                left[place] -= 1
                if left[place] <= 0:
                    del left[place]
        return limits

    def _note_remaining(self, place: AgentBucket, fetched: Fetched, now: float) -> None:
        """Note the work items that are left. An agent and bucket that are already known keep their turn."""
        if fetched.remaining:
            self._available[place] = fetched.remaining
        else:
            self._available.pop(place, None)
        if fetched.due:  # 0 means that the delayed work is due now and was counted
            self.sweep_by(now + fetched.due, (place,))

    def _end_recovery(self, losses: int) -> None:
        """If no counted work is left, mark the first `losses` losses as recovered."""
        if self._recovered < losses and not self._available:
            self._recovered = losses
            self.sweep_by(-inf)

    def _held(self, places: Iterable[AgentBucket]) -> dict[AgentBucket, tuple[str, ...]]:
        return {place: self._in_flight.sessions(place) for place in places}
