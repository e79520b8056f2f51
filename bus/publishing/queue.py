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
    """A caller that waits until its deadline at most."""

    @property
    def is_over(self) -> bool:
        """It no longer waits."""
        ...

    def expire(self) -> None:
        """Fail: the deadline has passed."""
        ...


class Deadlines:
    """Expires callers at their deadlines, with one timer for all: most are answered long before it fires.

    A heap finds the next deadline. Answered callers are removed whenever the heap has doubled; until then it only holds
    weak references. If many deadlines pass at once, other tasks run in between.
    """

    def __init__(self, at_once: int) -> None:
        """
        Args:
            at_once: most callers to expire in one turn of the event loop.
        """
        self._at_once, self._most = at_once, 2 * at_once
        self._heap: list[tuple[float, int, ref[Waiting]]] = []
        self._noted = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def note(self, deadline: float, waiting: Waiting) -> None:
        """Expire a caller at this time of the event loop's clock, if it still waits then."""
        self._noted += 1
        heappush(self._heap, (deadline, self._noted, ref(waiting)))
        if len(self._heap) > self._most:  # hot path: of most callers only the dead reference is left
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
        """Expire callers whose deadline has passed. Publishes that were sent stay in flight."""
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
        text = f"{what}. Publish less at a time, or raise `PublishBounds.queue_bytes`"
        self.admitted.set_exception(Unavailable(text))


class PublishQueue:
    """A queue bounded by bytes. If it is full, callers wait for room and enter in order."""

    def __init__(self, limit_bytes: int, at_once: int, deadlines: Deadlines) -> None:
        """
        Args:
            limit_bytes: most JSON that waits.
            at_once: most callers to admit in one turn of the event loop, so that they do not block it.
            deadlines: expires callers that wait for room.
        """
        self._waiting: deque[PendingPublish] = deque()
        self._limit_bytes, self._at_once, self._deadlines = limit_bytes, at_once, deadlines
        self._size_bytes = 0
        self._parked_bytes = 0
        self._outside: OrderedDict[_Entrant, None] = OrderedDict()
        self._admitted = self._admitted_bytes = 0
        """callers admitted that have not put their publish yet, and its bytes"""
        self.is_closed = False
        """no new publish is accepted"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingPublish]:
        return iter(self._waiting)

    def put(self, publish: PendingPublish) -> None:
        """Add a publish at the end. The caller has checked for room."""
        self._waiting.append(publish)
        self._size_bytes += publish.size_bytes

    def park(self, size_bytes: int) -> None:
        """Count bytes that were taken and wait in an outbox; a negative size ends their waiting."""
        self._parked_bytes += size_bytes
        self._admit()

    @property
    def is_full(self) -> bool:
        """A caller has to wait for room: the bound is reached, or other callers wait already."""
        return bool(self._outside) or self._has_no_room

    @property
    def _has_no_room(self) -> bool:
        return self._size_bytes + self._parked_bytes + self._admitted_bytes > self._limit_bytes

    async def wait_room(self, session: str, size_bytes: int, seconds: float, deadline: float) -> None:
        """Wait until there is room. The caller must then `put` before it awaits anything else.

        Args:
            session: session of the publish, for the error text.
            size_bytes: size of the publish.
            seconds: how long the caller waits, for the error text.
            deadline: the end of that time, on the event loop's clock.

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
        """Admit the callers that there is room for."""
        while self._outside and self._admitted < self._at_once and (self.is_closed or not self._has_no_room):
            entrant, _ = self._outside.popitem(last=False)
            self._admitted += 1
            self._admitted_bytes += entrant.size_bytes
            if not entrant.is_over:
                entrant.admitted.set_result(None)

    def take(self, count: int, limit_bytes: int) -> Iterator[PendingPublish]:
        """Yield publishes from the front: up to `count`, and about `limit_bytes`. Drop those no caller waits for."""
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
