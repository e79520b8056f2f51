"""How fast a bus goes, from looks at it."""

from decimal import Decimal

import pytest

from lanebus import Usage
from lanebus.handlers.monitoring.pace import WINDOW_SECONDS, Pacer, Step
from lanebus.messages import Cost

__all__ = ()


def turn(tokens: int, dollars: str | None = None) -> Usage:
    cost = None if dollars is None else Cost(total=Decimal(dollars))
    return Usage(input=tokens, total_tokens=tokens, cost=cost)


def test_what_was_done_is_told_by_the_second_and_by_the_minute() -> None:
    pace = Pacer().add(Step(2.0, 10, 10, (turn(100, "0.5"), turn(20, "0.25"))))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (5.0, 1.0, False)
    assert pace.tokens == pytest.approx(3_600)
    assert pace.dollars == pytest.approx(Decimal("22.5"))


def test_where_only_a_part_was_looked_into_the_rest_is_taken_to_be_like_it() -> None:
    pace = Pacer().add(Step(1.0, 100, 25, (turn(10, "1"),)))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (100.0, 4.0, True)
    assert pace.tokens == pytest.approx(2_400)
    assert pace.dollars == pytest.approx(Decimal(240))


def test_a_cost_that_nobody_knows_is_not_nothing() -> None:
    assert Pacer().add(Step(1.0, 1, 1, (turn(10),))).dollars is None
    assert Pacer().add(Step(1.0, 1, 1, ())).dollars == 0
    assert Pacer().add(Step(1.0, 1, 1, (turn(10), turn(10, "1")))).dollars == pytest.approx(Decimal(60))


def test_what_is_long_ago_does_not_count() -> None:
    pacer = Pacer()
    pacer.add(Step(1.0, 1_000, 1_000, ()))
    pace = [pacer.add(Step(1.0, 5, 5, ())) for _ in range(int(WINDOW_SECONDS))][-1]
    assert (pace.seconds, pace.publishes) == (WINDOW_SECONDS, 5.0)


def test_a_look_that_was_long_waited_for_counts_whole() -> None:
    pacer = Pacer()
    pacer.add(Step(1.0, 1_000, 1_000, ()))
    pace = pacer.add(Step(60.0, 60, 60, ()))
    assert (pace.seconds, pace.publishes) == (60.0, 1.0)


def test_where_nothing_could_be_looked_into_nothing_is_made_up() -> None:
    pace = Pacer().add(Step(1.0, 100, 0, ()))
    assert (pace.publishes, pace.turns, pace.is_estimate) == (100.0, 0.0, False)
