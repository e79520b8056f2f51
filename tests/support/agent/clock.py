"""A clock that only the test moves."""

import time

import anyio

__all__ = ("ManualClock",)


class ManualClock:
    """Stands still until the test moves it. Its time is the machine's at first, as the server's is."""

    def __init__(self) -> None:
        self._moved = 0.0
        self._start = time.time()
        self._changed = anyio.Event()
        self.sleepers = 0
        """how many wait for it"""

    def time(self) -> float:
        return self._start + self._moved

    def monotonic(self) -> float:
        return self._moved

    async def sleep(self, seconds: float) -> None:
        until = self._moved + seconds
        self.sleepers += 1
        try:
            while self._moved < until:
                await self._changed.wait()
        finally:
            self.sleepers -= 1

    def move(self, seconds: float) -> None:
        """Let so many seconds go by at once."""
        self._moved += seconds
        self._changed.set()
        self._changed = anyio.Event()
