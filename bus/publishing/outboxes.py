"""Remember the number of a producer's last append, for a bounded number of sessions.

A producer numbers its appends to a session 1, 2, 3 … within a *term*. Terms only grow, and the server compares them
without trusting a clock. If this process forgets a session, it continues the session in a later term. If a session's
head forgets a producer, the head keeps a *floor*: a new term must be above the floor.

So the server refuses every late copy of an append and appends nothing twice, even if the producer or the head has
forgotten the append's number. A producer whose term is refused checks first whether the log lost the producer's earlier
appends. Then it continues in a term above the floor.
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
    """The outboxes of one producer on all servers. The outbox that was idle for longest is forgotten first."""

    def __init__(self, producer: str, most: int) -> None:
        """
        Args:
            producer: a name that no other process has.
            most: number of sessions to remember.
        """
        self.producer = producer
        self._most = most
        # If a head forgot many producers, its floor is a time shortly before now. A term that starts at the present
        # time is above that floor. If this process's clock is wrong, beginning a term costs one more round trip.
        self._term = time.time_ns() // 1_000_000
        self._outboxes: OrderedDict[str, Outbox] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outboxes)

    def of(self, session: str, parked: Callable[[int], None]) -> Outbox:
        """Return the outbox of a session. `parked` is a field of a new outbox."""
        outbox = self._outboxes.get(session)
        if outbox is None:
            outbox = self._outboxes[session] = Outbox(session, parked, self._term)
        else:
            self._outboxes.move_to_end(session)
        return outbox

    def above(self, floor: int) -> int:
        """Return the number for a new term. It is above `floor` and above the numbers of all previous terms."""
        self._term = max(self._term, floor) + 1
        return self._term

    def forget(self, count: int) -> None:
        """Forget idle sessions if there are more than `PublishBounds.sessions`.

        Args:
            count: number of sessions in the last batch. At most twice as many sessions are examined, so that the cost
                stays small. A busy session is examined again later.
        """
        for _ in range(min(len(self._outboxes) - self._most, 2 * count)):
            session, outbox = self._outboxes.popitem(last=False)
            if not outbox.is_idle:
                self._outboxes[session] = outbox
            elif outbox.term >= self._term:
                self._term = outbox.term + 1
