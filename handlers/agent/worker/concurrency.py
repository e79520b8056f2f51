"""The limit on the number of sessions that a worker runs concurrently."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

__all__ = ("ConcurrencyLimiter", "Slot")


class ConcurrencyLimiter:
    """Slots for running sessions. A session that only waits, for a person or another session, holds no slot."""

    def __init__(self, limit: int) -> None:
        self._semaphore = anyio.Semaphore(limit, fast_acquire=True)

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._semaphore.value

    async def wait_free(self) -> None:
        """Wait until a slot is free, without taking the slot. Waiters are served in order."""
        if not self._semaphore.value:
            await self._semaphore.acquire()
            self._semaphore.release()

    def slot(self) -> "Slot":
        """Return a `Slot` for a session. It takes a place at once if the worker has one free; see
        `Slot.take`."""
        return Slot(self._semaphore)


class Slot:
    """The slot of one session, which can be released and taken again."""

    def __init__(self, semaphore: anyio.Semaphore) -> None:
        self._semaphore = semaphore
        self._blocks = 0
        """number of open `lent` blocks"""
        self._is_taken = semaphore.value > 0
        if self._is_taken:
            semaphore.acquire_nowait()

    async def take(self) -> None:
        """Wait for a free slot and take it."""
        if not self._is_taken:
            await self._semaphore.acquire()
            self._is_taken = True

    def give_back(self) -> None:
        """Release the slot. Repeated calls do nothing."""
        if self._is_taken:
            self._is_taken = False
            self._semaphore.release()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None, None]:
        """Release the slot for the length of the block.

        Blocks may overlap; the slot is taken again at the end of the last block. A block that is cancelled or raises
        does not take it again, so that clean-up does not wait for other sessions.
        """
        self._blocks += 1
        self.give_back()
        try:
            yield
        finally:
            self._blocks -= 1
        if not self._blocks:
            await self.take()
