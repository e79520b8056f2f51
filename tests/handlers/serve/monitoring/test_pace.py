"""Rates computed from successive looks at a bus."""

from decimal import Decimal

import pytest

from lanebus import Usage
from lanebus.handlers.serve.watcher import WINDOW_SECONDS, Pacer, Step
from lanebus.messages import Cost

__all__ = ()


def turn(tokens: int, dollars: str | None = None) -> Usage:
    cost = None if dollars is None else Cost(total=Decimal(dollars))
    return Usage(input=tokens, total_tokens=tokens, cost=cost)


def test_rates_are_per_second_and_per_minute() -> None:
    pace = Pacer().add(Step(2.0, 10, 10, (turn(100, "0.5"), turn(20, "0.25"))))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (5.0, 1.0, False)
    assert pace.tokens == pytest.approx(3_600)
    assert pace.dollars == pytest.approx(Decimal("22.5"))


def test_rates_are_extrapolated_if_only_a_part_was_read() -> None:
    pace = Pacer().add(Step(1.0, 100, 25, (turn(10, "1"),)))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (100.0, 4.0, True)
    assert pace.tokens == pytest.approx(2_400)
    assert pace.dollars == pytest.approx(Decimal(240))


def test_an_unknown_cost_is_none_and_not_zero() -> None:
    assert Pacer().add(Step(1.0, 1, 1, (turn(10),))).dollars is None
    assert Pacer().add(Step(1.0, 1, 1, ())).dollars == 0
    assert Pacer().add(Step(1.0, 1, 1, (turn(10), turn(10, "1")))).dollars == pytest.approx(Decimal(60))


def test_steps_before_the_window_do_not_count() -> None:
    pacer = Pacer()
    pacer.add(Step(1.0, 1_000, 1_000, ()))
    pace = [pacer.add(Step(1.0, 5, 5, ())) for _ in range(int(WINDOW_SECONDS))][-1]
    assert (pace.seconds, pace.publishes) == (WINDOW_SECONDS, 5.0)


def test_a_step_longer_than_the_window_counts_whole() -> None:
    pacer = Pacer()
    pacer.add(Step(1.0, 1_000, 1_000, ()))
    pace = pacer.add(Step(60.0, 60, 60, ()))
    assert (pace.seconds, pace.publishes) == (60.0, 1.0)


def test_nothing_is_extrapolated_if_nothing_was_read() -> None:
    pace = Pacer().add(Step(1.0, 100, 0, ()))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (100.0, 0.0, False)
