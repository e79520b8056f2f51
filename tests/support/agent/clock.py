"""A clock that only the test advances."""

import time

import anyio


class ManualClock:
    """Stands still until the test advances it. It starts at the machine's time, like the server's clock."""

    def __init__(self) -> None:
        self._moved = 0.0
        self._start = time.time()
        self._changed = anyio.Event()
        self.sleepers = 0
        """number of tasks that sleep on it"""

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
        """Advance the clock by so many seconds at once."""
        self._moved += seconds
        self._changed.set()
        self._changed = anyio.Event()
