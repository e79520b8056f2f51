"""Measure the time of a fork, which does not depend on the number of shared entries: no entry is copied."""

import time
from statistics import median

from bench.rounds import ROUNDS, Spread, spread
from bench.size import fill
from lanebus import Bus

__all__ = ("SHARED", "forking")

SHARED = 100_000
"""number of entries in the forked session"""

_FORKS = 100


async def forking(bus: Bus) -> Spread:
    """Return the milliseconds that `fork` takes at the end of a session of `SHARED` entries."""
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
