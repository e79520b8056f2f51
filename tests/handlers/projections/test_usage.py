"""Usage is the sum over the model calls of the LLM lane, and over nothing else."""

import json
from decimal import Decimal

import pytest

from lanebus import AssistantMessage, Bus, DecodeFailure, Envelope, ExtensionMessage, Lane, Session
from lanebus.bus.messages import Rates, ToolResultMessage, TurnId, Usage, UsageSettled, UserMessage
from lanebus.errors import SessionErased, UnknownKind
from lanebus.handlers.context import READ_UP_TO
from lanebus.handlers.projections import total_usage, tree_usage
from lanebus.messages import AgentEnded, Compaction, Cost, ParallelLoopsEnded, SessionLinked, StopReason, TurnEnded
from lanebus.projections import SESSIONS, TURNS, USAGE, Totals, UsageState, read_links, summary
from tests.support.agent.folding import Said, fold, log_of, through_json
from tests.support.cli.command_line import CommandLine

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
    events: list[Said] = [
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


# --- an estimate counts until what the call really took is told, which then takes its place, once, in eve ---

NEXT = TurnId(loop_id="s1.main.1", turn_index=1)
GUESS = Usage(input=9, output=1, total_tokens=10, estimated=True)
PAID = Usage(input=10, output=5, total_tokens=15, cost=Cost(input=Decimal("0.1"), total=Decimal("0.1")))
OTHER = Usage(input=3, output=2, total_tokens=5, cost=Cost(input=Decimal("0.2"), total=Decimal("0.2")))


def guessed(usage: Usage, turn_id: TurnId = TURN, *, model: str = "m1") -> AssistantMessage:
    return AssistantMessage(usage=usage, turn_id=turn_id, stop_reason="aborted", provider="acme", model=model)


def told(message: int, usage: Usage = PAID, turn_id: TurnId = TURN) -> UsageSettled:
    return UsageSettled(turn_id=turn_id, message=message, usage=usage)


def sums(*messages: Said) -> list[Usage]:
    """The sum of a log as each projection has it."""
    log = log_of(*messages)
    return [fold(USAGE, log).total.usage, fold(SESSIONS, log).usage, total_usage(fold(TURNS, log))]


def reported(*usages: Usage) -> UsageState:
    """What the fold gives where the same was reported at once."""
    return fold(USAGE, log_of(*(guessed(usage) for usage in usages)))


def test_an_estimate_counts_and_makes_the_sum_an_estimate() -> None:
    for total in sums(guessed(GUESS), guessed(OTHER, NEXT)):
        assert (total.input, total.output, total.estimated) == (12, 3, True)
    state = fold(USAGE, log_of(guessed(GUESS), guessed(OTHER, NEXT)))
    assert state.total.calls_of_unknown_cost == 1


def test_what_is_settled_takes_the_place_of_the_estimate() -> None:
    log = (guessed(OTHER), guessed(GUESS, NEXT), told(2, turn_id=NEXT))
    for total in sums(*log):
        assert total == OTHER.combine(PAID)
    assert fold(USAGE, log_of(*log)).total == reported(OTHER, PAID).total
    assert fold(USAGE, log_of(*log)).models == reported(OTHER, PAID).models


@pytest.mark.parametrize("times", [2, 5])
def test_it_is_told_several_times_and_counts_once(times: int) -> None:
    for total in sums(guessed(GUESS), *[told(1)] * times, guessed(OTHER, NEXT)):
        assert total == PAID.combine(OTHER)


def test_the_first_settlement_counts_and_no_other() -> None:
    for total in sums(guessed(GUESS), told(1), told(1, OTHER)):
        assert total == PAID


@pytest.mark.parametrize("times", [1, 2])
def test_one_that_comes_before_its_message_waits_for_it(times: int) -> None:
    for total in sums(*[told(times + 1)] * times, guessed(GUESS), told(times + 1, OTHER)):
        assert total == PAID


def test_what_was_reported_is_not_settled() -> None:
    for log in ((guessed(OTHER), told(1)), (told(2), guessed(OTHER))):
        for total in sums(*log):
            assert total == OTHER


def test_a_settlement_of_something_else_changes_nothing() -> None:
    for total in sums(guessed(GUESS), told(7, turn_id=NEXT)):
        assert total == GUESS
    state = fold(USAGE, log_of(guessed(GUESS), told(1, turn_id=NEXT)))
    assert state.total.usage == PAID  # of a turn that was told wrongly the message counts
    assert state.early == {}


def test_several_estimates_are_settled_each_by_its_own() -> None:
    estimates = (guessed(GUESS), guessed(GUESS, NEXT), guessed(GUESS, model="m2"))
    for total in sums(*estimates, told(2, turn_id=NEXT)):
        assert (total.input, total.output, total.estimated) == (28, 7, True)
    for total in sums(*estimates, told(2, turn_id=NEXT), told(3), told(1, OTHER)):
        assert total == PAID.combine(PAID).combine(OTHER)


def test_events_that_repeat_the_estimate_are_not_called_wrong_once_it_is_settled() -> None:
    log = (
        guessed(GUESS),
        TurnEnded(turn_id=TURN, stop_reason="aborted", usage=GUESS),
        told(1),
        guessed(OTHER, NEXT),
        TurnEnded(turn_id=NEXT, stop_reason="stop", usage=OTHER),
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=2, usage=GUESS.combine(OTHER)),
    )
    state = fold(USAGE, log_of(*log))
    assert state.mismatch_count == 0
    assert state.total.usage == PAID.combine(OTHER)


@pytest.mark.full
def test_estimates_that_are_never_settled_do_not_grow_the_state_without_bound() -> None:
    turns = [TurnId(loop_id=f"s1.main.{number}", turn_index=0) for number in range(300)]
    state = fold(USAGE, log_of(*(guessed(GUESS, turn) for turn in turns)))
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
    before, after = log_of(guessed(GUESS), told(9)), log_of(told(1))
    assert fold(USAGE, after, through_json(USAGE, fold(USAGE, before))).total.usage == PAID
    assert fold(SESSIONS, after, through_json(SESSIONS, fold(SESSIONS, before))).usage == PAID
    assert total_usage(fold(TURNS, after, through_json(TURNS, fold(TURNS, before)))) == PAID


def test_a_turn_that_is_cut_twice_is_settled_message_by_message() -> None:
    for total in sums(guessed(GUESS), guessed(GUESS), told(2, OTHER), told(1)):
        assert total == PAID.combine(OTHER)


def test_a_summary_counts_whether_an_estimate_beside_it_is_settled_or_not() -> None:
    summary = Compaction(summary="x", provider="acme", model="m1", usage=OTHER)
    for log in (
        (guessed(GUESS), summary, told(1)),
        (summary, guessed(GUESS), told(2)),
        (guessed(GUESS), told(1), summary),
    ):
        entries = log_of(*log)
        assert fold(SESSIONS, entries).usage == fold(USAGE, entries).total.usage == OTHER.combine(PAID)


# --- what a session took with all that its tool calls have begun ---------------------------------------------------

TOP_TURN = TurnId(loop_id="top.main.1", turn_index=0)


def link(parent: str, child: str) -> SessionLinked:
    return SessionLinked(parent=parent, child=child, turn_id=TOP_TURN, tool_call_id="c", agent="helper")


async def spend(session: Session, tokens: int) -> None:
    cost = Cost(total=Decimal(tokens))
    await session.publish(AssistantMessage(usage=Usage(input=tokens, total_tokens=tokens, cost=cost)))


async def tree(bus: Bus) -> Session:
    """A session with two children, one of which has one."""
    for name, tokens in (("top", 1), ("a", 10), ("b", 100), ("aa", 1_000)):
        await spend(bus.session(name), tokens)
    for parent, child in (("top", "a"), ("top", "b"), ("a", "aa")):
        await bus.session(parent).publish(link(parent, child).as_extension())
        await bus.session(child).publish(link(parent, child).as_extension())
    return bus.session("top")


async def test_a_session_and_all_below_it_are_summed_up(bus: Bus) -> None:
    found = await tree_usage(await tree(bus))
    assert [(depth, each.session, each.own.usage.input) for depth, each in found.walk()] == [
        (0, "top", 1),
        (1, "a", 10),
        (2, "aa", 1_000),
        (1, "b", 100),
    ]
    assert found.usage.input == 1_111
    assert found.usage.cost is not None
    assert found.usage.cost.total == 1_111
    assert [child.agent for child in found.children] == ["helper", "helper"]
    assert (await tree_usage(bus.session("a"))).usage.input == 1_010


async def test_each_session_counts_once_though_links_run_in_a_circle(bus: Bus) -> None:
    top = await tree(bus)
    await bus.session("aa").publish(link("aa", "top").as_extension(), link("aa", "b").as_extension())
    assert (await tree_usage(top)).usage.input == 1_111


async def test_an_erased_child_is_told_and_counts_nothing(bus: Bus) -> None:
    top = await tree(bus)
    await bus.session("a").erase()
    found = await tree_usage(top)
    assert [(each.session, each.is_erased) for _, each in found.walk()] == [("top", False), ("a", True), ("b", False)]
    assert found.usage.input == 101
    with pytest.raises(SessionErased):
        await tree_usage(bus.session("a"))


async def test_links_name_the_parent_and_the_children_and_a_fork_has_its_own(bus: Bus) -> None:
    top = await tree(bus)
    assert [each.child for each in (await read_links(top)).children] == ["a", "b"]
    links = await read_links(bus.session("a"))
    assert links.parent == link("top", "a")
    assert [each.child for each in links.children] == ["aa"]
    fork = await top.fork()
    await fork.publish(UserMessage.text("hi"), link(fork.id, "c").as_extension())
    assert [each.child for each in (await read_links(fork)).children] == ["c"]


async def test_what_is_left_of_a_trimmed_log_counts(bus: Bus) -> None:
    top = await tree(bus)
    await spend(top, 5)
    await top.trim((await top.head()).position)
    found = await tree_usage(top)
    assert (found.own.usage.input, found.children) == (5, ())


@pytest.mark.full
def test_the_command_line_shows_the_tree(lanebus: CommandLine) -> None:
    answer = '{"role":"assistant","content":[],"usage":{"input":%d,"output":0,"total_tokens":%d}}'
    told = link("top", "a").as_extension().to_json()
    for session, tokens in (("top", 1), ("a", 10)):
        assert lanebus("publish", session, "--json", stdin=f"{answer % (tokens, tokens)}\n{told}\n").code == 0
    shown = lanebus("usage", "top", "--tree", "--table").out.splitlines()
    assert [line.split()[:3] for line in shown[-3:]] == [["top", "1", "1"], ["a", "1", "10"], ["total", "2", "11"]]
    assert [len(line) - len(line.lstrip()) for line in shown[-3:]] == [0, 2, 0]
    found = lanebus("usage", "top", "--tree").object
    assert isinstance(found["total"], dict)
    assert found["total"]["input"] == 11
