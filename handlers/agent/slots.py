"""How many sessions a worker works on at a time."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

__all__ = ("Place", "Slots")


class Slots:
    """Places for sessions. Who only waits, for a person or for another session, holds none."""

    def __init__(self, limit: int) -> None:
        self._semaphore = anyio.Semaphore(limit, fast_acquire=True)

    @property
    def free(self) -> int:
        """How many may be taken at once."""
        return self._semaphore.value

    async def wait_free(self) -> None:
        """Wait until there is a free one; it is not taken. Those who waited before get theirs first."""
        if not self._semaphore.value:
            await self._semaphore.acquire()
            self._semaphore.release()

    def place(self) -> "Place":
        """A place, taken at once if one is free."""
        return Place(self._semaphore)


class Place:
    """One session's place. It may be given back and taken again."""

    def __init__(self, semaphore: anyio.Semaphore) -> None:
        self._semaphore = semaphore
        self._blocks = 0
        """for whose length it is lent"""
        self._is_taken = semaphore.value > 0
        if self._is_taken:
            semaphore.acquire_nowait()

    async def take(self) -> None:
        """Have the place, once one is free."""
        if not self._is_taken:
            await self._semaphore.acquire()
            self._is_taken = True

    def give_back(self) -> None:
        """Let another session have it; twice is fine."""
        if self._is_taken:
            self._is_taken = False
            self._semaphore.release()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None, None]:
        """Let others have it for the length of the block. Blocks may overlap: the place is taken again at the end of
        the last one. Where a block is cancelled or raises, it does not take it again: what is left to do then does not
        wait for others."""
        self._blocks += 1
        self.give_back()
        try:
            yield
        finally:
            self._blocks -= 1
        if not self._blocks:
            await self.take()
