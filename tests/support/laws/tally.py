"""A count that other tasks wait for."""

import asyncio

import anyio

__all__ = ("Tally",)

PATIENCE = 120.0
"""seconds after which a wait fails"""


class Tally:
    """A count. Create it within a running event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def add(self, count: int = 1) -> None:
        self.count += count
        self._news.set()

    async def wait(self, count: int) -> None:
        """Wait until the count is at least `count`.

        Raises:
            TimeoutError: the count was not reached.
        """
        with anyio.fail_after(PATIENCE):
            while self.count < count:
                self._news.clear()
                await self._news.wait()
