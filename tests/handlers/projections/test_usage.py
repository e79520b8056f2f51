"""Usage is the sum over the model calls of the LLM lane, and over nothing else."""

import json
from decimal import Decimal

import pytest

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Lane, Rates, ToolResultMessage, Usage
from lanebus.errors import UnknownKind
from lanebus.handlers.context import READ_UP_TO
from lanebus.messages import AgentEnded, Cost, ParallelLoopsEnded, StopReason, TurnEnded, TurnId, UserMessage
from lanebus.projections import USAGE, Totals, UsageState, summary
from tests.support.agent.folding import fold, log_of, through_json

__all__ = ()

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
TEN = Usage(input=10, output=5, total_tokens=15, cost=Cost(input=Decimal("0.1"), total=Decimal("0.1")))


def answer(
    usage: Usage | None = TEN,
    *,
    turn_id: TurnId | None = None,
    stop_reason: StopReason = "stop",
    provider: str = "acme",
    model: str = "m1",
) -> AssistantMessage:
    return AssistantMessage(usage=usage, turn_id=turn_id, stop_reason=stop_reason, provider=provider, model=model)


def test_every_model_call_counts_once_failed_and_aborted_ones_too() -> None:
    other = (UserMessage.text("hi"), ToolResultMessage(tool_call_id="t"))
    state = fold(USAGE, log_of(*other, answer(), answer(stop_reason="error"), answer(stop_reason="aborted")))

    assert state.total.calls == 3
    assert state.total.usage == Usage(
        input=30, output=15, total_tokens=45, cost=Cost(input=Decimal("0.3"), total=Decimal("0.3"))
    ), "exact, where floats would give 0.30000000000000004"


def test_a_record_that_a_loop_failed_or_was_given_up_is_no_model_call() -> None:
    marks = [
        AssistantMessage(stop_reason="error", error_message="KeyError: 'no'", metadata={READ_UP_TO: 1}),
        AssistantMessage(stop_reason="aborted", error_message="Aborted", turn_id=TURN, metadata={READ_UP_TO: 1}),
    ]
    failed = AssistantMessage(stop_reason="error", error_message="of a program that names no model")

    assert fold(USAGE, log_of(*marks)) == UsageState()
    assert fold(USAGE, log_of(*marks, failed)).total.calls == 1


def test_each_model_of_each_provider_has_its_own_sum() -> None:
    log = log_of(answer(), answer(model="m2"), answer(provider="other"), answer())

    rows = fold(USAGE, log).models

    assert [(row.provider, row.model, row.totals.calls, row.totals.usage.input) for row in rows] == [
        ("acme", "m1", 2, 20),
        ("acme", "m2", 1, 10),
        ("other", "m1", 1, 10),
    ]


def test_an_unknown_cost_is_counted_and_is_not_zero() -> None:
    free = Usage(input=1, cost=Cost())
    state = fold(USAGE, log_of(answer(Usage(input=1)), answer(None)))
    assert (state.total.calls, state.total.calls_of_unknown_cost) == (2, 2)
    assert state.total.usage.cost is None

    state = fold(USAGE, log_of(answer(free)), state)
    assert state.total.calls_of_unknown_cost == 2
    assert state.total.usage.cost == Cost()


def test_nothing_in_the_extension_lane_changes_a_sum() -> None:
    events = [
        ExtensionMessage.of("notification", {"usage": {"input": 1000}}),
        ExtensionMessage.of("agent.turn.ended", {"usage": "nonsense"}),
        ExtensionMessage.of("agent.no.such", None),
        TurnEnded(turn_id=TURN, stop_reason="stop", usage=TEN),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=1, usage=TEN),
        ParallelLoopsEnded(selected_loop_id="x", selected_config_index=0, evaluation_usage=TEN),
    ]

    state = fold(USAGE, log_of(*events))

    assert state.total == Totals()
    assert state.models == ()
    assert state.problems == 1


def test_events_that_repeat_the_sums_agree_and_are_not_counted_again() -> None:
    second = TurnId(loop_id=TURN.loop_id, turn_index=1)
    twice = TEN.combine(TEN)
    log = log_of(
        answer(turn_id=TURN),
        TurnEnded(turn_id=TURN, stop_reason="toolUse", usage=TEN),
        answer(turn_id=second),
        TurnEnded(turn_id=second, stop_reason="stop", usage=TEN.model_copy(update={"cost": None})),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=2, usage=twice),
    )

    state = fold(USAGE, log)

    assert state.total.usage == twice
    assert state.mismatches == ()
    assert (state.open_turns, state.open_loops) == ({}, {})


def test_a_sum_that_an_event_repeats_wrongly_is_recorded() -> None:
    wrong = TEN.model_copy(update={"output": 6})
    dearer = TEN.model_copy(update={"cost": Cost(total=Decimal("0.2"))})
    log = log_of(
        answer(turn_id=TURN),
        TurnEnded(turn_id=TURN, stop_reason="stop", usage=wrong),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=1, usage=dearer),
    )

    state = fold(USAGE, log)

    assert [(found.position, found.of, found.said) for found in state.mismatches] == [
        (2, "s1.main.1#0", wrong),
        (3, "s1.main.1", dearer),
    ]
    assert state.mismatch_count == 2
    assert state.total.usage == TEN


def test_a_cut_turn_keeps_its_usage_and_leaves_nothing_open_after_its_loop() -> None:
    log = log_of(
        answer(turn_id=TURN, stop_reason="aborted"),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="aborted", turns=1, usage=TEN),
    )

    state = fold(USAGE, log)

    assert state.total.usage == TEN
    assert state.open_turns == {}
    assert state.mismatches == ()


def test_turns_that_never_end_do_not_grow_the_state_without_bound() -> None:
    turns = [TurnId(loop_id=f"s1.main.{number}", turn_index=0) for number in range(400)]
    state = fold(USAGE, log_of(*(answer(turn_id=turn) for turn in turns)))
    assert len(state.open_turns) == len(state.open_loops) == 256

    # The first turn's sum is gone, so its late end is not called wrong.
    late = log_of(TurnEnded(turn_id=turns[0], stop_reason="stop", usage=TEN))
    assert fold(USAGE, late, state).mismatch_count == 0
    assert state.total.calls == 400


@pytest.mark.parametrize("source", [None, "prices/1"])
@pytest.mark.parametrize("total", ["42.5959075", "0.0000005", "3", "1E-9"])
def test_the_summary_has_the_cost_of_the_message_json(total: str, source: str | None) -> None:
    usage = Usage(
        input=1, output=2, total_tokens=3, cost=Cost(input=Decimal("0.10"), total=Decimal(total), source=source)
    )
    assert summary(usage) == json.loads(usage.to_json())


def test_the_summary_has_exactly_the_keys_of_the_command_line() -> None:
    assert list(summary(Usage())) == [
        *("input", "output", "reasoning", "cache_read", "cache_write", "total_tokens", "cost")
    ]
    assert summary(Usage())["cost"] is None


def test_a_stored_state_comes_back_equal_with_the_same_bytes() -> None:
    state = fold(
        USAGE, log_of(answer(turn_id=TURN), answer(None), answer(Usage(input=1, cost=Cost(total=Decimal("1.50")))))
    )
    assert through_json(USAGE, state) == state
    assert USAGE.dump(through_json(USAGE, state)) == USAGE.dump(state)


def test_an_entry_that_cannot_be_read_is_counted_as_a_problem_and_as_no_call() -> None:
    broken = Envelope("s1", 1, Lane.LLM, DecodeFailure(UnknownKind("x"), b"{}"), 0.0, "test")
    assert fold(USAGE, [broken]) == UsageState(problems=1)


@pytest.mark.parametrize("amount", ["1E+15", "-1E+15", "1E-999999999"])
def test_no_amount_that_a_message_may_name_ends_the_fold(amount: str) -> None:
    cost = Cost(total=Decimal(amount))
    state = through_json(USAGE, fold(USAGE, log_of(*[answer(Usage(cost=cost))] * 3)))
    told = state.total.usage.cost
    assert told is not None
    assert abs(told.total) <= 10**15
    assert len(str(summary(state.total.usage))) < 2000


def test_tokens_that_nobody_can_pay_for_have_a_cost_all_the_same() -> None:
    cost = Usage(input=10**40).cost_at(Rates(input=Decimal(3), output=Decimal(15)))
    assert cost.total == cost.input == 10**15
