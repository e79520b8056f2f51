"""Compute rates from successive looks at a bus. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from lanebus.bus.messages.usage import Usage
from lanebus.handlers.monitoring.overview import Pace

__all__ = ("WINDOW_SECONDS", "Pacer", "Step")

WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Step:
    """The publishes and ended turns between two calls of `Watcher.look`."""

    seconds: float
    publishes: int
    looked_into: int
    """number of those `publishes` that belong to sessions whose entries were read. Only these sessions give `turns`"""
    turns: tuple[Usage, ...]
    """usage of each ended turn, in the sessions whose entries were read"""

    @property
    def factor(self) -> float:
        """`publishes / looked_into`, at least 1. Multiply `turns` by it to estimate the turns of all sessions."""
        return max(self.publishes / self.looked_into, 1.0) if self.looked_into else 1.0


class Pacer:
    """Averages the rates over the steps that cover the last `WINDOW_SECONDS`."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def add(self, step: Step) -> Pace:
        """Add the newest step and return the rates."""
        self._steps.append(step)
        while sum(each.seconds for each in self._steps) - self._steps[0].seconds >= WINDOW_SECONDS:
            self._steps.popleft()
        return _pace(self._steps)


def _pace(steps: Iterable[Step]) -> Pace:
    seconds, publishes, turns, tokens, dollars = 0.0, 0, 0.0, 0.0, Decimal(0)
    is_priced = is_estimate = False
    for step in steps:
        seconds += step.seconds
        publishes += step.publishes
        turns += len(step.turns) * step.factor
        tokens += sum(usage.total_tokens for usage in step.turns) * step.factor
        costs = [usage.cost.total for usage in step.turns if usage.cost is not None]
        dollars += sum(costs, Decimal(0)) * Decimal(step.factor)
        is_priced = is_priced or bool(costs)
        is_estimate = is_estimate or step.factor > 1.0
    minutes = seconds / 60
    return Pace(
        seconds=seconds,
        publishes=publishes / seconds,
        turns=turns / seconds,
        tokens=tokens / minutes,
        dollars=dollars / Decimal(minutes) if is_priced or not turns else None,
        is_estimate=is_estimate,
    )
