"""Find the consumers of a group that have fallen silent, without trusting the server's clock.

Each heartbeat of a consumer raises the consumer's count. The observer records on its own monotonic clock when it saw a
count change. A consumer is silent if its count has not changed for its heartbeat period. Pure: the caller passes in the
time, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ("LastHeartbeat", "Liveness")


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The newest heartbeat of a consumer."""

    count: int
    """how many heartbeats the consumer has sent"""
    seconds: float
    """seconds without another heartbeat after which the consumer is silent"""


@dataclass(slots=True)
class _Observed:
    heartbeat: LastHeartbeat
    since: float


class Liveness:
    """The heartbeats that one consumer has observed of the other consumers in its group."""

    def __init__(self, own: str, heartbeat: float) -> None:
        """
        Args:
            own: name of the observing consumer, which is never silent.
            heartbeat: seconds after which a consumer that has work but never sent a heartbeat is silent.
        """
        self._own, self._unknown = own, LastHeartbeat(-1, heartbeat)
        self._observed: dict[str, _Observed] = {}
        self._holders: dict[str, _Observed] = {}

    def note(self, heartbeats: Mapping[str, LastHeartbeat], now: float) -> None:
        """Record the newest heartbeat of every consumer in the group."""
        observed: dict[str, _Observed] = {}
        for name, heartbeat in heartbeats.items():
            previous = self._observed.get(name)
            if previous is None or previous.heartbeat != heartbeat:
                previous = _Observed(heartbeat, now)
            observed[name] = previous
        self._observed = observed

    def note_holders(self, names: Iterable[str], now: float) -> None:
        """Begin to observe consumers that have work but never sent a heartbeat. They become silent if no heartbeat
        arrives.

        Args:
            names: the consumers that have work.
            now: the present time.
        """
        for name in names:
            if name not in self._observed:
                self._holders.setdefault(name, _Observed(self._unknown, now))

    def restart(self, now: float) -> None:
        """Measure every consumer's silence from `now` on. For use after the server was unreachable, when no consumer
        could send a heartbeat."""
        for observed in (*self._observed.values(), *self._holders.values()):
            observed.since = now

    def silent(self, now: float) -> frozenset[str]:
        """Return the consumers whose work items may be claimed."""
        for name in self._holders.keys() & self._observed.keys():
            del self._holders[name]
        return frozenset(
            name
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own and now - observed.since >= observed.heartbeat.seconds
        )

    def next_silence(self, now: float) -> float | None:
        """Return the seconds until the next consumer becomes silent; None if no other consumer can become silent."""
        left = (
            observed.since + observed.heartbeat.seconds - now
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own
        )
        return min((seconds for seconds in left if seconds > 0), default=None)
