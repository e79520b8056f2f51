"""An estimate counts until what the call really took is told, which then takes its place, once, in every projection."""

from decimal import Decimal

import pytest

from lanebus.handlers.projections import SESSIONS, TURNS, USAGE, UsageState, total_usage
from lanebus.messages import AgentEnded, AssistantMessage, Compaction, Cost, TurnEnded, TurnId, Usage, UsageSettled
from tests.support.agent.folding import Said, fold, log_of, through_json

__all__ = ()

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
NEXT = TurnId(loop_id="s1.main.1", turn_index=1)
GUESS = Usage(input=9, output=1, total_tokens=10, estimated=True)
PAID = Usage(input=10, output=5, total_tokens=15, cost=Cost(input=Decimal("0.1"), total=Decimal("0.1")))
OTHER = Usage(input=3, output=2, total_tokens=5, cost=Cost(input=Decimal("0.2"), total=Decimal("0.2")))


def answer(usage: Usage, turn_id: TurnId = TURN, *, model: str = "m1") -> AssistantMessage:
    return AssistantMessage(usage=usage, turn_id=turn_id, stop_reason="aborted", provider="acme", model=model)


def told(message: int, usage: Usage = PAID, turn_id: TurnId = TURN) -> UsageSettled:
    return UsageSettled(turn_id=turn_id, message=message, usage=usage)


def sums(*messages: Said) -> list[Usage]:
    """The sum of a log as each projection has it."""
    log = log_of(*messages)
    return [fold(USAGE, log).total.usage, fold(SESSIONS, log).usage, total_usage(fold(TURNS, log))]


def reported(*usages: Usage) -> UsageState:
    """What the fold gives where the same was reported at once."""
    return fold(USAGE, log_of(*(answer(usage) for usage in usages)))


def test_an_estimate_counts_and_makes_the_sum_an_estimate() -> None:
    for total in sums(answer(GUESS), answer(OTHER, NEXT)):
        assert (total.input, total.output, total.estimated) == (12, 3, True)
    state = fold(USAGE, log_of(answer(GUESS), answer(OTHER, NEXT)))
    assert state.total.calls_of_unknown_cost == 1


def test_what_is_settled_takes_the_place_of_the_estimate() -> None:
    log = (answer(OTHER), answer(GUESS, NEXT), told(2, turn_id=NEXT))
    for total in sums(*log):
        assert total == OTHER.combine(PAID)
    assert fold(USAGE, log_of(*log)).total == reported(OTHER, PAID).total
    assert fold(USAGE, log_of(*log)).models == reported(OTHER, PAID).models


@pytest.mark.parametrize("times", [2, 5])
def test_it_is_told_several_times_and_counts_once(times: int) -> None:
    for total in sums(answer(GUESS), *[told(1)] * times, answer(OTHER, NEXT)):
        assert total == PAID.combine(OTHER)


def test_the_first_settlement_counts_and_no_other() -> None:
    for total in sums(answer(GUESS), told(1), told(1, OTHER)):
        assert total == PAID


@pytest.mark.parametrize("times", [1, 2])
def test_one_that_comes_before_its_message_waits_for_it(times: int) -> None:
    for total in sums(*[told(times + 1)] * times, answer(GUESS), told(times + 1, OTHER)):
        assert total == PAID


def test_what_was_reported_is_not_settled() -> None:
    for log in ((answer(OTHER), told(1)), (told(2), answer(OTHER))):
        for total in sums(*log):
            assert total == OTHER


def test_a_settlement_of_something_else_changes_nothing() -> None:
    for total in sums(answer(GUESS), told(7, turn_id=NEXT)):
        assert total == GUESS
    state = fold(USAGE, log_of(answer(GUESS), told(1, turn_id=NEXT)))
    assert state.total.usage == PAID  # of a turn that was told wrongly the message counts
    assert state.early == {}


def test_several_estimates_are_settled_each_by_its_own() -> None:
    estimates = (answer(GUESS), answer(GUESS, NEXT), answer(GUESS, model="m2"))
    for total in sums(*estimates, told(2, turn_id=NEXT)):
        assert (total.input, total.output, total.estimated) == (28, 7, True)
    for total in sums(*estimates, told(2, turn_id=NEXT), told(3), told(1, OTHER)):
        assert total == PAID.combine(PAID).combine(OTHER)


def test_events_that_repeat_the_estimate_are_not_called_wrong_once_it_is_settled() -> None:
    log = (
        answer(GUESS),
        TurnEnded(turn_id=TURN, stop_reason="aborted", usage=GUESS),
        told(1),
        answer(OTHER, NEXT),
        TurnEnded(turn_id=NEXT, stop_reason="stop", usage=OTHER),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=2, usage=GUESS.combine(OTHER)),
    )
    state = fold(USAGE, log_of(*log))
    assert state.mismatch_count == 0
    assert state.total.usage == PAID.combine(OTHER)


@pytest.mark.full
def test_estimates_that_are_never_settled_do_not_grow_the_state_without_bound() -> None:
    turns = [TurnId(loop_id=f"s1.main.{number}", turn_index=0) for number in range(300)]
    state = fold(USAGE, log_of(*(answer(GUESS, turn) for turn in turns)))
    assert state.total.pending is not None
    assert len(state.total.pending.estimates) == 256
    assert state.total.usage.input == 9 * 300
    late = log_of(*(told(position, turn_id=turn) for position, turn in enumerate(turns, 1)))
    total = fold(USAGE, late, state).total
    assert total.usage.input == 9 * 44 + 10 * 256  # of the oldest the estimate stays
    assert total.pending is None


def test_settlements_whose_messages_never_come_do_not_grow_the_state_without_bound() -> None:
    state = fold(USAGE, log_of(*(told(1000 + number) for number in range(300))))
    assert len(state.early) == 256


def test_a_stored_state_comes_back_and_goes_on() -> None:
    before, after = log_of(answer(GUESS), told(9)), log_of(told(1))
    assert fold(USAGE, after, through_json(USAGE, fold(USAGE, before))).total.usage == PAID
    assert fold(SESSIONS, after, through_json(SESSIONS, fold(SESSIONS, before))).usage == PAID
    assert total_usage(fold(TURNS, after, through_json(TURNS, fold(TURNS, before)))) == PAID


def test_a_turn_that_is_cut_twice_is_settled_message_by_message() -> None:
    for total in sums(answer(GUESS), answer(GUESS), told(2, OTHER), told(1)):
        assert total == PAID.combine(OTHER)


def test_a_summary_counts_whether_an_estimate_beside_it_is_settled_or_not() -> None:
    summary = Compaction(summary="x", provider="acme", model="m1", usage=OTHER)
    for log in (
        (answer(GUESS), summary, told(1)),
        (summary, answer(GUESS), told(2)),
        (answer(GUESS), told(1), summary),
    ):
        entries = log_of(*log)
        assert fold(SESSIONS, entries).usage == fold(USAGE, entries).total.usage == OTHER.combine(PAID)
