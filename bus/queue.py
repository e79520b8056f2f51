"""Publishes that wait to be sent, in the order they came; and when each of them has waited long enough."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING

import anyio

from bus.errors import Closed, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bus.publish import Publish

__all__ = ("Deadlines", "PublishQueue")


class PublishQueue:
    """A queue bounded by bytes. A caller that finds it full waits for room."""

    def __init__(self, limit_bytes: int) -> None:
        self._waiting: deque[Publish] = deque()
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._parked_bytes = 0
        self._room = asyncio.Event()
        self.is_closed = False
        """nothing new is taken"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Publish]:
        return iter(self._waiting)

    def put(self, publish: Publish) -> None:
        """Add one at the end; look for room first."""
        self._waiting.append(publish)
        self._size_bytes += publish.size_bytes

    def park(self, size_bytes: int) -> None:
        """Count what was taken and waits elsewhere; a negative size is what waits no longer."""
        self._parked_bytes += size_bytes
        if not self.is_full:
            self._room.set()

    @property
    def is_full(self) -> bool:
        """It holds as much as it may."""
        return self._size_bytes + self._parked_bytes > self._limit_bytes

    async def wait_room(self, session: str, seconds: float) -> None:
        """Wait until there is room.

        Raises:
            Unavailable: there was none for `seconds`.
            Closed: the queue was closed.
        """
        with anyio.move_on_after(seconds):
            while self.is_full and not self.is_closed:
                self._room.clear()
                await self._room.wait()
        if self.is_closed:
            raise Closed("bus")
        if self.is_full:
            raise Unavailable(f"publish to session {session!r}: no room in the queue for {seconds:g} s")

    def take(self, count: int, limit_bytes: int) -> Iterator[Publish]:
        """Up to `count` from the front, up to about `limit_bytes`; those nobody waits for any more are dropped."""
        while self._waiting and count and limit_bytes > 0:
            publish = self._waiting.popleft()
            self._size_bytes -= publish.size_bytes
            if publish.future.done():  # cancelled, or over its deadline, before it was sent
                continue
            count -= 1
            limit_bytes -= publish.size_bytes
            yield publish
        if not self.is_full:
            self._room.set()

    def close(self) -> None:
        """Take nothing new."""
        self.is_closed = True
        self._room.set()

    def clear(self) -> None:
        """Forget what is in it."""
        self._waiting.clear()
        self._size_bytes = 0


class Deadlines:
    """Ends the waiting of callers, with one timer for all: most are answered long before it rings."""

    def __init__(self, pending: Callable[[], Sequence[Publish]]) -> None:
        """`pending` gives every publish that is under way."""
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next = math.inf

    def note(self, deadline: float) -> None:
        """Ring at this time of the loop's clock, if not before."""
        if deadline < self._next:
            self.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)
            self._next = deadline

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = None, math.inf

    def _expire(self) -> None:
        """End the waiting of every caller whose deadline is over; what was sent goes on being sent."""
        self._timer, self._next = None, math.inf
        now = self._loop.time()
        waiting = [publish for publish in self._pending() if not publish.future.done()]
        for publish in waiting:
            if publish.deadline > now:
                self.note(publish.deadline)
            elif publish.is_sent:
                publish.fail(OutcomeUnknown(publish.session, publish.seconds))
            else:
                unsent = Unavailable(f"publish to session {publish.session!r}: not sent in {publish.seconds:g} s")
                publish.fail(publish.reason or unsent)
