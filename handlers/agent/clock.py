"""The time, as an agent's loop sees it: passed in, so that tests need not wait."""

import time
from typing import Protocol

import anyio

__all__ = ("SYSTEM_CLOCK", "Clock", "SystemClock")


class Clock(Protocol):
    """Tells the time and waits."""

    def time(self) -> float:
        """Return seconds UTC. It may be stepped in either direction."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait so long. May be cancelled."""
        ...


class SystemClock:
    """The `Clock` of the machine."""

    def time(self) -> float:
        """See `Clock`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await anyio.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
