"""Let principals take turns at work that costs, so that one with many requests does not hold up the others."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from lanebus.handlers.ui.errors import ServerBusy, TooManyWaiting

__all__ = ("Turns", "WorkTurn")


@dataclass(slots=True, eq=False)
class _Waiter:
    is_rested: bool
    """whether its work has begun"""
    admitted: asyncio.Event = field(default_factory=asyncio.Event)


class WorkTurn:
    """The right of one request to work, for the length of a block."""

    __slots__ = ("_owner", "_turns", "is_held")

    def __init__(self, turns: "Turns", owner: str) -> None:
        self._turns, self._owner, self.is_held = turns, owner, True

    async def rest(self) -> None:
        """Let the other principals that wait work first. Returns at once if none does.

        Raises:
            ServerBusy: the next turn did not come in time.
        """
        if self.is_held and self._turns.has_others(self._owner):
            self.is_held = False
            self._turns.free()
            await self._turns.enter(self._owner, is_rested=True)
            self.is_held = True


class Turns:
    """Turns at one kind of work. Principals go round; the requests of one wait behind each other."""

    def __init__(self, at_once: int, *, own: int, begun: int, queued: int, seconds: float) -> None:
        """
        Args:
            at_once: number of requests that work at the same time.
            own: how many of them one principal may have, also while they rest.
            begun: how many requests may have begun, with those that rest.
            queued: number of requests of one principal that may wait.
            seconds: longest wait for a turn.
        """
        self._at_once, self._own, self._begun = at_once, own, begun
        self._queued, self._seconds = queued, seconds
        self._working, self._active = 0, Counter[str]()
        self._waiting: dict[str, deque[_Waiter]] = {}
        """principal → its requests that wait. The principal that was served longest ago comes first"""

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncGenerator[WorkTurn]:
        """Wait for a turn, and hold it for the length of the block.

        Args:
            owner: the principal, or the address of a client without one.

        Raises:
            TooManyWaiting: the principal has too many requests that wait.
            ServerBusy: the turn did not come in time.
        """
        await self.enter(owner, is_rested=False)
        turn = WorkTurn(self, owner)
        try:
            yield turn
        finally:
            self._leave(owner)
            if turn.is_held:
                self.free()

    def has_others(self, owner: str) -> bool:
        """Return whether a request of another principal waits that could work now. Used by `WorkTurn`."""
        return any(name != owner and self._may_work(name, queue[0]) for name, queue in self._waiting.items())

    def free(self) -> None:
        """Let the next request work in place of one. Used by `WorkTurn`."""
        self._working -= 1
        self._admit()

    async def enter(self, owner: str, *, is_rested: bool) -> None:
        """Wait for a turn. Used by `WorkTurn`."""
        queue = self._waiting.setdefault(owner, deque())
        if not is_rested and len(queue) >= self._queued:
            raise TooManyWaiting(self._queued)
        waiter, is_admitted = _Waiter(is_rested), False
        if is_rested:
            queue.appendleft(waiter)
        else:
            queue.append(waiter)
        self._admit()
        try:
            with anyio.move_on_after(self._seconds):
                await waiter.admitted.wait()
                is_admitted = True
        finally:
            if not is_admitted:
                self._give_up(owner, waiter)
        if not is_admitted:
            raise ServerBusy

    def _give_up(self, owner: str, waiter: _Waiter) -> None:
        if waiter.admitted.is_set():  # admitted in the moment of the cancellation
            if not waiter.is_rested:
                self._leave(owner)
            self.free()
        else:
            self._waiting[owner].remove(waiter)
            self._tidy(owner)
            self._admit()

    def _leave(self, owner: str) -> None:
        self._active[owner] -= 1
        if not self._active[owner]:
            del self._active[owner]

    def _may_work(self, owner: str, waiter: _Waiter) -> bool:
        if waiter.is_rested:
            return True
        return self._active[owner] < self._own and self._active.total() < self._begun

    def _admit(self) -> None:
        while self._working < self._at_once:
            owner = next((name for name, queue in self._waiting.items() if self._may_work(name, queue[0])), None)
            if owner is None:
                return
            waiter = self._waiting[owner].popleft()
            self._waiting[owner] = self._waiting.pop(owner)  # it is served last from now on
            self._tidy(owner)
            self._working += 1
            if not waiter.is_rested:
                self._active[owner] += 1
            waiter.admitted.set()

    def _tidy(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]
