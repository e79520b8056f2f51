"""The clock of an agent's loop. Tests pass a clock of their own, so that they need not wait."""

import time
from typing import Protocol

import anyio

from lanebus.bus.errors import require_methods

__all__ = ("SYSTEM_CLOCK", "Clock", "SystemClock", "require_clock")


class Clock(Protocol):
    """A source of time that can also wait."""

    def time(self) -> float:
        """Return seconds UTC. The clock may be set forward or back."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`. The wait can be cancelled."""
        ...


def require_clock(clock: object) -> None:
    """Raise InvalidArgument unless the value is a `Clock`."""
    require_methods("clock", clock, ("time", "monotonic", "sleep"), "leave it out, or pass a Clock")


class SystemClock:
    """The clock of the machine."""

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
