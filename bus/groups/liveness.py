"""Find the consumers of a group that have fallen silent, without trusting the server's clock.

Each heartbeat of a consumer raises a count. The observer notes when it saw the count change, on its own monotonic
clock. A consumer is silent once its count has not changed for its heartbeat period. Pure: times are passed in, in
seconds.
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
    """seconds without another heartbeat after which it counts as silent"""


@dataclass(slots=True)
class _Observed:
    heartbeat: LastHeartbeat
    since: float


class Liveness:
    """What one consumer has observed of the others."""

    def __init__(self, own: str, heartbeat: float) -> None:
        """
        Args:
            own: name of this consumer; it never counts as silent.
            heartbeat: seconds after which a consumer that has work and never sent a heartbeat counts as silent.
        """
        self._own, self._unknown = own, LastHeartbeat(-1, heartbeat)
        self._observed: dict[str, _Observed] = {}
        self._holders: dict[str, _Observed] = {}

    def note(self, heartbeats: Mapping[str, LastHeartbeat], now: float) -> None:
        """Note the newest heartbeats of all consumers of the group."""
        observed: dict[str, _Observed] = {}
        for name, heartbeat in heartbeats.items():
            previous = self._observed.get(name)
            if previous is None or previous.heartbeat != heartbeat:
                previous = _Observed(heartbeat, now)
            observed[name] = previous
        self._observed = observed

    def note_holders(self, names: Iterable[str], now: float) -> None:
        """Note consumers that have work; those that never sent a heartbeat are observed from now on."""
        for name in names:
            if name not in self._observed:
                self._holders.setdefault(name, _Observed(self._unknown, now))

    def restart(self, now: float) -> None:
        """Give each consumer a whole period from now on, as none could reach the server to send a heartbeat."""
        for observed in (*self._observed.values(), *self._holders.values()):
            observed.since = now

    def silent(self, now: float) -> frozenset[str]:
        """Return the consumers whose works may be claimed."""
        for name in self._holders.keys() & self._observed.keys():
            del self._holders[name]
        return frozenset(
            name
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own and now - observed.since >= observed.heartbeat.seconds
        )

    def next_silence(self, now: float) -> float | None:
        """Return the seconds until the next consumer would count as silent; None if there is none."""
        left = (
            observed.since + observed.heartbeat.seconds - now
            for known in (self._observed, self._holders)
            for name, observed in known.items()
            if name != self._own
        )
        return min((seconds for seconds in left if seconds > 0), default=None)
