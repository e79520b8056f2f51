"""Publishes that wait to be sent, in the order they came; and when each caller has waited long enough."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from lanebus.bus.errors import Closed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lanebus.bus.publishing.pending_publish import PendingPublish

__all__ = ("Deadlines", "PublishQueue", "Waiting")


class Waiting(Protocol):
    """A caller that waits, until its deadline at most."""

    @property
    def is_over(self) -> bool:
        """It waits no longer."""
        ...

    def expire(self) -> None:
        """End its waiting with an error: its deadline is over."""
        ...


class Deadlines:
    """Ends the waiting of callers, with one timer for all: most are answered long before it fires.

    A heap finds the next one, so a deadline costs the same however many wait. Those that were answered leave it as it
    doubles; it keeps none of them alive. Where many deadlines are over at once, other tasks run in between.
    """

    def __init__(self, at_once: int) -> None:
        """Takes how many are looked at in one turn of the event loop."""
        self._at_once, self._most = at_once, 2 * at_once
        self._heap: list[tuple[float, int, ref[Waiting]]] = []
        self._noted = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def note(self, deadline: float, waiting: Waiting) -> None:
        """End a caller's waiting at this time of the loop's clock, if it still waits then."""
        self._noted += 1
        heappush(self._heap, (deadline, self._noted, ref(waiting)))
        if len(self._heap) > self._most:  # hot path: hardly any of them is still there to be asked
            self._heap = [each for each in self._heap if (caller := each[2]()) is not None and not caller.is_over]
            heapify(self._heap)
            self._most = 2 * max(len(self._heap), self._at_once)
        if deadline < self._next:
            self._arm(deadline)

    def __len__(self) -> int:
        return len(self._heap)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, math.inf

    def _arm(self, when: float) -> None:
        self.cancel()
        self._timer, self._next = self._loop.call_at(when, self._expire), when

    def _expire(self) -> None:
        """End the waiting of callers whose deadline is over; what was sent goes on being sent."""
        self._timer, self._next = None, math.inf
        heap, now = self._heap, self._loop.time()
        for _ in range(self._at_once):
            if not heap or heap[0][0] > now:
                break
            waiting = heappop(heap)[2]()
            if waiting is not None and not waiting.is_over:
                waiting.expire()
        if heap:
            self._arm(heap[0][0])


class _Entrance:
    """A caller that waits for room in the queue."""

    def __init__(self, session: str, seconds: float, size_bytes: int) -> None:
        self.session, self.seconds, self.size_bytes = session, seconds, size_bytes
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """See `Waiting`."""
        return self.admitted.done()

    def expire(self) -> None:
        """See `Waiting`."""
        text = f"publish to session {self.session!r}: no room in the queue for {self.seconds:g} s"
        self.admitted.set_exception(Unavailable(text))


class PublishQueue:
    """A queue bounded by bytes. Callers that find it full wait for room, and come in in their order."""

    def __init__(self, limit_bytes: int, at_once: int, deadlines: Deadlines) -> None:
        """Takes how many of those that wait for room are let in in one turn of the event loop, so that what else runs
        there is not held up by them."""
        self._waiting: deque[PendingPublish] = deque()
        self._limit_bytes, self._at_once, self._deadlines = limit_bytes, at_once, deadlines
        self._size_bytes = 0
        self._parked_bytes = 0
        self._outside: OrderedDict[_Entrance, None] = OrderedDict()
        self._coming = self._coming_bytes = 0
        """of those that were let in and have not put anything yet"""
        self.is_closed = False
        """nothing new is taken"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingPublish]:
        return iter(self._waiting)

    def put(self, publish: PendingPublish) -> None:
        """Add one at the end; look for room first."""
        self._waiting.append(publish)
        self._size_bytes += publish.size_bytes

    def park(self, size_bytes: int) -> None:
        """Count what was taken and waits elsewhere; a negative size is what waits no longer."""
        self._parked_bytes += size_bytes
        self._admit()

    @property
    def is_full(self) -> bool:
        """A caller has to wait for room: the queue holds as much as it may, or others wait for room already."""
        return bool(self._outside) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        return self._size_bytes + self._parked_bytes + self._coming_bytes > self._limit_bytes

    async def wait_room(self, session: str, size_bytes: int, seconds: float, deadline: float) -> None:
        """Wait until there is room, and put what was waited with before anything else is awaited.

        Raises:
            Unavailable: there was none until the deadline, `seconds` after the call.
            Closed: the queue was closed.
        """
        if self.is_closed:
            raise Closed("bus")
        entrance = _Entrance(session, seconds, size_bytes)
        self._outside[entrance] = None
        self._deadlines.note(deadline, entrance)
        try:
            await entrance.admitted
        finally:
            if entrance in self._outside:
                del self._outside[entrance]
            else:
                self._coming -= 1
                self._coming_bytes -= size_bytes
                if not self._coming and self._outside:  # behind what this one puts
                    asyncio.get_running_loop().call_soon(self._admit)
        if self.is_closed:
            raise Closed("bus")

    def _admit(self) -> None:
        """Let in those that there is room for."""
        while self._outside and self._coming < self._at_once and (self.is_closed or not self._has_no_room):
            entrance, _ = self._outside.popitem(last=False)
            self._coming += 1
            self._coming_bytes += entrance.size_bytes
            if not entrance.is_over:
                entrance.admitted.set_result(None)

    def take(self, count: int, limit_bytes: int) -> Iterator[PendingPublish]:
        """Up to `count` from the front, up to about `limit_bytes`; those nobody waits for any more are dropped."""
        while self._waiting and count and limit_bytes > 0:
            publish = self._waiting.popleft()
            self._size_bytes -= publish.size_bytes
            if publish.is_over:  # cancelled, or over its deadline, before it was sent
                continue
            count -= 1
            limit_bytes -= publish.size_bytes
            yield publish
        self._admit()

    def close(self) -> None:
        """Take nothing new."""
        self.is_closed = True
        self._admit()

    def clear(self) -> None:
        """Forget what is in it."""
        self._waiting.clear()
        self._size_bytes = 0
