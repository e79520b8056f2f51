"""The sessions that one process publishes to, as far as it goes on with its numbers there.

A producer numbers its appends to a session 1, 2, 3 … within a *term*: a number that only grows, and that the server
compares without believing any clock. A session that is forgotten here begins again in a later term, and a head that
forgets a producer keeps a *floor* under the terms that may begin there: so the server refuses every late copy of an
append, whoever has forgotten its number, and nothing is appended twice. A producer whose term is refused compares what
it knows of the log with the log, so that it hears of a lost end, and goes on in a term above the floor.
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
    """The outboxes of one producer, over all servers. Those that were idle for longest are forgotten first."""

    def __init__(self, producer: str, most: int) -> None:
        """Takes a name that no other process has, and how many sessions to remember."""
        self.producer = producer
        self._most = most
        # Where heads have forgotten many producers, their floor is a little in the past: a term that begins with the
        # clock is above it at once, and one from a wrong clock after one more round trip.
        self._term = time.time_ns() // 1_000_000
        self._outboxes: OrderedDict[str, Outbox] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outboxes)

    def of(self, session: str, parked: Callable[[int], None]) -> Outbox:
        """The outbox of a session; `parked` is for a new one."""
        outbox = self._outboxes.get(session)
        if outbox is None:
            outbox = self._outboxes[session] = Outbox(session, parked, self._term)
        else:
            self._outboxes.move_to_end(session)
        return outbox

    def above(self, floor: int) -> int:
        """A term that is above a floor, and above all before it."""
        self._term = max(self._term, floor) + 1
        return self._term

    def forget(self, count: int) -> None:
        """Forget sessions beyond the bound, of twice as many as were published to just now: those that are not idle are
        looked at again later."""
        for _ in range(min(len(self._outboxes) - self._most, 2 * count)):
            session, outbox = self._outboxes.popitem(last=False)
            if not outbox.is_idle:
                self._outboxes[session] = outbox
            elif outbox.term >= self._term:
                self._term = outbox.term + 1
