"""Which consumers of a group are alive. No clock of a server is believed: one is alive while its count of signs
changes.

Whoever looks on notes each count with a clock of its own that never goes back. A consumer is silent once its count has
stood still for a heartbeat of its own, seen from here. Pure: times are passed in, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ("Liveness", "Sign")


@dataclass(frozen=True, slots=True)
class Sign:
    """The newest sign of life of a consumer."""

    count: int
    heartbeat: float
    """seconds without another one after which it counts as silent"""


@dataclass(slots=True)
class _Seen:
    sign: Sign
    since: float


class Liveness:
    """What one consumer knows of the others."""

    def __init__(self, own: str, heartbeat: float) -> None:
        """`heartbeat` is for those that have work and never gave a sign."""
        self._own, self._unknown = own, Sign(-1, heartbeat)
        self._seen: dict[str, _Seen] = {}
        self._holders: dict[str, _Seen] = {}

    def note(self, signs: Mapping[str, Sign], now: float) -> None:
        """Note the signs of all consumers of the group."""
        seen: dict[str, _Seen] = {}
        for name, sign in signs.items():
            before = self._seen.get(name)
            seen[name] = before if before is not None and before.sign == sign else _Seen(sign, now)
        self._seen = seen

    def note_holders(self, names: Iterable[str], now: float) -> None:
        """Note who has work, of those that may give no sign. Whoever is not named again for long is forgotten."""
        for name in names:
            if name not in self._seen:
                self._holders.setdefault(name, _Seen(self._unknown, now))

    def begin_again(self, now: float) -> None:
        """The server was away, and nobody could give a sign: everyone has a whole heartbeat from now on."""
        for seen in (*self._seen.values(), *self._holders.values()):
            seen.since = now

    def silent(self, now: float) -> frozenset[str]:
        """Those whose work is to be given to others."""
        for name in self._holders.keys() & self._seen.keys():
            del self._holders[name]
        return frozenset(
            name
            for known in (self._seen, self._holders)
            for name, seen in known.items()
            if name != self._own and now - seen.since >= seen.sign.heartbeat
        )

    def next_silence(self, now: float) -> float | None:
        """Seconds until another one would count as silent; None if there is no other."""
        left = (
            seen.since + seen.sign.heartbeat - now
            for known in (self._seen, self._holders)
            for name, seen in known.items()
            if name != self._own
        )
        return min((seconds for seconds in left if seconds > 0), default=None)
