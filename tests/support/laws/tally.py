"""A count that others wait for."""

import asyncio

import anyio

__all__ = ("Tally",)

PATIENCE = 120.0
"""Seconds after which what is waited for counts as never to come."""


class Tally:
    """Made within a running event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def add(self, count: int = 1) -> None:
        self.count += count
        self._news.set()

    async def wait(self, count: int) -> None:
        """Wait until there are so many.

        Raises:
            TimeoutError: they never came.
        """
        with anyio.fail_after(PATIENCE):
            while self.count < count:
                self._news.clear()
                await self._news.wait()
