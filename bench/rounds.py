"""Measuring two ways of doing a thing in turn, so that both see the same machine."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median

__all__ = ("Compared", "Measure", "Spread", "compare", "spread")

ROUNDS = 5

Measure = Callable[[], Awaitable[float]]
"""Does the thing once and gives its figure."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One line of the report. A ratio is taken within a round, ours to plain."""

    what: str
    unit: str
    plain: Spread
    ours: Spread
    ratio: Spread
    goal: str


def spread(values: list[float]) -> Spread:
    """The least, the median and the greatest."""
    return Spread(min(values), median(values), max(values))


async def compare(what: str, unit: str, goal: str, plain: Measure, ours: Measure) -> Compared:
    """Measure both in turn, once unseen and then `ROUNDS` times."""
    await plain()
    await ours()
    pairs = [(await plain(), await ours()) for _ in range(ROUNDS)]
    ratios = [mine / theirs for theirs, mine in pairs]
    return Compared(
        what, unit, spread([theirs for theirs, _ in pairs]), spread([mine for _, mine in pairs]), spread(ratios), goal
    )
