"""How many sessions a worker works on at a time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

__all__ = ("ConcurrencyLimiter", "Slot")


class ConcurrencyLimiter:
    """Slots for sessions. A session that only waits, for a person or for another session, holds none."""

    def __init__(self, limit: int) -> None:
        self._semaphore = anyio.Semaphore(limit, fast_acquire=True)

    @property
    def free(self) -> int:
        """How many slots may be taken at once."""
        return self._semaphore.value

    async def wait_free(self) -> None:
        """Wait until a slot is free; it is not taken. Earlier waiters get theirs first."""
        if not self._semaphore.value:
            await self._semaphore.acquire()
            self._semaphore.release()

    def slot(self) -> "Slot":
        """Return a slot, taken at once if one is free."""
        return Slot(self._semaphore)


class Slot:
    """One session's slot. It may be given back and taken again."""

    def __init__(self, semaphore: anyio.Semaphore) -> None:
        self._semaphore = semaphore
        self._blocks = 0
        """how many blocks have lent it"""
        self._is_taken = semaphore.value > 0
        if self._is_taken:
            semaphore.acquire_nowait()

    async def take(self) -> None:
        """Take the slot, once one is free."""
        if not self._is_taken:
            await self._semaphore.acquire()
            self._is_taken = True

    def give_back(self) -> None:
        """Let another session have it. May be called again."""
        if self._is_taken:
            self._is_taken = False
            self._semaphore.release()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None, None]:
        """Let other sessions have it for the length of the block. Blocks may overlap: it is taken again at the end of
        the last one. A block that is cancelled or raises does not take it again: what is left to do then does not wait
        for other sessions."""
        self._blocks += 1
        self.give_back()
        try:
            yield
        finally:
            self._blocks -= 1
        if not self._blocks:
            await self.take()
