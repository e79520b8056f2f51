"""How long a fork takes, whatever it shares: nothing is copied."""

import time
from statistics import median

from bench.rounds import ROUNDS, Spread, spread
from bench.size import fill
from lanebus import Bus

__all__ = ("SHARED", "forking")

SHARED = 100_000
"""entries of the session that is forked"""

_FORKS = 100


async def forking(bus: Bus) -> Spread:
    """Milliseconds from asking for a fork at the end of a session of `SHARED` entries to a fork that can be used."""
    parent = bus.session("bench-parent")
    await fill(parent, SHARED)
    medians: list[float] = []
    for _ in range(ROUNDS):
        times: list[float] = []
        for _ in range(_FORKS):
            began = time.perf_counter()
            await parent.fork()
            times.append(time.perf_counter() - began)
        medians.append(median(times) * 1e3)
    return spread(medians)
