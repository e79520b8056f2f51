"""The sessions for which one process remembers the number of its last append.

A producer numbers its appends to a session 1, 2, 3 … within a *term*. Terms only grow, and the server compares them
without trusting a clock. A session forgotten here continues in a later term. A head that forgets a producer keeps a
*floor*: new terms must be above it. So the server refuses every late copy of an append, even if producer or head have
forgotten its number, and appends nothing twice. A producer whose term is refused first checks whether the log lost its
earlier appends, and then continues in a term above the floor.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from lanebus.bus.publishing.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Outboxes",)


class Outboxes:
    """The outboxes of one producer on all servers. The ones idle for longest are forgotten first."""

    def __init__(self, producer: str, most: int) -> None:
        """
        Args:
            producer: a name that no other process has.
            most: number of sessions to remember.
        """
        self.producer = producer
        self._most = most
        # Floors of heads that forgot many producers lie a little in the past. A term that starts at the clock is above
        # them; with a wrong clock it costs one more round trip.
        self._term = time.time_ns() // 1_000_000
        self._outboxes: OrderedDict[str, Outbox] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outboxes)

    def of(self, session: str, parked: Callable[[int], None]) -> Outbox:
        """Return the outbox of a session; a new one gets `parked`."""
        outbox = self._outboxes.get(session)
        if outbox is None:
            outbox = self._outboxes[session] = Outbox(session, parked, self._term)
        else:
            self._outboxes.move_to_end(session)
        return outbox

    def above(self, floor: int) -> int:
        """Return a term above a floor and above all previous terms."""
        self._term = max(self._term, floor) + 1
        return self._term

    def forget(self, count: int) -> None:
        """Forget idle sessions beyond the bound.

        Args:
            count: sessions published to just now. At most twice as many are examined, so that the cost stays small;
                busy ones are examined again later.
        """
        for _ in range(min(len(self._outboxes) - self._most, 2 * count)):
            session, outbox = self._outboxes.popitem(last=False)
            if not outbox.is_idle:
                self._outboxes[session] = outbox
            elif outbox.term >= self._term:
                self._term = outbox.term + 1
