"""The queue of publishes to send, and the deadlines of their callers."""

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
    """A caller that waits, but no longer than its deadline."""

    @property
    def is_over(self) -> bool:
        """Whether the caller no longer waits."""
        ...

    def expire(self) -> None:
        """Raise an error in the caller because its deadline has passed."""
        ...


class Deadlines:
    """Expires callers at their deadlines. One timer serves all callers, because most callers are answered before the
    timer fires.

    A heap finds the next deadline. The heap holds weak references to callers. Answered callers are removed each time
    the heap's size has doubled. If many deadlines pass at once, other tasks run in between.
    """

    def __init__(self, at_once: int) -> None:
        """
        Args:
            at_once: maximum number of callers to expire in one turn of the event loop.
        """
        self._at_once, self._most = at_once, 2 * at_once
        self._heap: list[tuple[float, int, ref[Waiting]]] = []
        self._noted = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def note(self, deadline: float, waiting: Waiting) -> None:
        """Expire a caller at `deadline`, on the event loop's clock, if the caller still waits then."""
        self._noted += 1
        heappush(self._heap, (deadline, self._noted, ref(waiting)))
        if len(self._heap) > self._most:  # hot path: most callers are gone, and only their dead references are left
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
        """Expire callers whose deadlines have passed. Publishes that were already sent stay in flight."""
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


class _Entrant:
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
        what = f"publish to session {self.session!r}: no room in the queue for {self.seconds:g} s"
        self.admitted.set_exception(Unavailable(what, "publish less at a time, or raise `PublishBounds.queue_bytes`"))


class PublishQueue:
    """A queue with a bound in bytes. If the queue is full, callers wait for room. Publishes are queued in the order of
    the calls, whichever task runs next."""

    def __init__(self, limit_bytes: int, at_once: int, deadlines: Deadlines) -> None:
        """
        Args:
            limit_bytes: maximum number of bytes of JSON that wait to be sent.
            at_once: maximum number of callers to admit in one turn of the event loop, so that the loop is not blocked.
            deadlines: expires callers that wait for room.
        """
        self._waiting: deque[PendingPublish] = deque()
        self._limit_bytes, self._at_once, self._deadlines = limit_bytes, at_once, deadlines
        self._size_bytes = 0
        self._parked_bytes = 0
        self._outside: OrderedDict[_Entrant, None] = OrderedDict()
        self._admitted = self._admitted_bytes = 0
        """number of admitted callers that have not called `put` yet, and the bytes of their publishes"""
        self.is_closed = False
        """whether new publishes are refused"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingPublish]:
        return iter(self._waiting)

    def put(self, publish: PendingPublish) -> None:
        """Add a publish at the end. The caller must have checked for room."""
        self._waiting.append(publish)
        self._size_bytes += publish.size_bytes

    def park(self, size_bytes: int) -> None:
        """Count bytes of publishes that were taken from the queue but wait in outboxes. A negative size subtracts."""
        self._parked_bytes += size_bytes
        self._admit()

    @property
    def is_full(self) -> bool:
        """Whether a caller has to wait: the bound is reached, or an earlier caller has not called `put` yet.

        An admitted caller calls `put` only when its task runs again. Until then a later caller must not pass it.
        """
        return bool(self._outside or self._admitted) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        return self._size_bytes + self._parked_bytes + self._admitted_bytes > self._limit_bytes

    async def wait_room(self, session: str, size_bytes: int, seconds: float, deadline: float) -> None:
        """Wait until there is room. The caller must then call `put` before it awaits anything else.

        Args:
            session: session of the publish, for the error text.
            size_bytes: size of the publish.
            seconds: time limit of the caller, for the error text.
            deadline: when `seconds` are over, on the event loop's clock.

        Raises:
            Unavailable: there was no room until the deadline.
            Closed: the queue was closed.
        """
        if self.is_closed:
            raise Closed("bus")
        entrant = _Entrant(session, seconds, size_bytes)
        self._outside[entrant] = None
        self._deadlines.note(deadline, entrant)
        try:
            await entrant.admitted
        finally:
            if entrant in self._outside:
                del self._outside[entrant]
            else:
                self._admitted -= 1
                self._admitted_bytes -= size_bytes
                if not self._admitted and self._outside:  # after this caller has put its publish
                    asyncio.get_running_loop().call_soon(self._admit)
        if self.is_closed:
            raise Closed("bus")

    def _admit(self) -> None:
        """Admit waiting callers while there is room."""
        while self._outside and self._admitted < self._at_once and (self.is_closed or not self._has_no_room):
            entrant, _ = self._outside.popitem(last=False)
            self._admitted += 1
            self._admitted_bytes += entrant.size_bytes
            if not entrant.is_over:
                entrant.admitted.set_result(None)

    def take(self, count: int, limit_bytes: int) -> Iterator[PendingPublish]:
        """Take publishes from the front and yield them: at most `count` publishes, with about `limit_bytes` in total.

        A publish whose caller no longer waits is dropped.
        """
        while self._waiting and count and limit_bytes > 0:
            publish = self._waiting.popleft()
            self._size_bytes -= publish.size_bytes
            if publish.is_over:  # cancelled or expired before it was sent
                continue
            count -= 1
            limit_bytes -= publish.size_bytes
            yield publish
        self._admit()

    def close(self) -> None:
        """Refuse new publishes."""
        self.is_closed = True
        self._admit()

    def clear(self) -> None:
        """Drop all publishes."""
        self._waiting.clear()
        self._size_bytes = 0
