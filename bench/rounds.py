"""Measure two implementations in turn, so that both run under the same load on the machine."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

__all__ = ("Compared", "Measure", "Spread", "compare", "spread")

ROUNDS = 5

Measure = Callable[[], Awaitable[float]]
"""An async function that runs a benchmark once and returns its figure."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The minimum, median and maximum of several measurements."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One line of the report. Each ratio is the figure of lanebus divided by the plain figure, in the same round."""

    what: str
    unit: str
    plain: Spread
    ours: Spread
    ratio: Spread
    goal: str


def spread(values: list[float]) -> Spread:
    """Return the minimum, median and maximum."""
    return Spread(min(values), median(values), max(values))


async def compare(what: str, unit: str, goal: str, plain: Measure, ours: Measure) -> Compared:
    """Measure `plain` and `ours` in turn: one warm-up that is not counted, then `ROUNDS` rounds."""
    await plain()
    await ours()
    pairs = [(await plain(), await ours()) for _ in range(ROUNDS)]
    ratios = [mine / theirs for theirs, mine in pairs]
    return Compared(
        what, unit, spread([theirs for theirs, _ in pairs]), spread([mine for _, mine in pairs]), spread(ratios), goal
    )
