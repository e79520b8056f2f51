"""Turns and loops, folded from agent events where there are any, else from the messages."""

from decimal import Decimal

import pytest

from lanebus import AssistantMessage, DecodeFailure, Envelope, ExtensionMessage, Lane, ToolCallBlock
from lanebus.bus.messages import ToolEnded, ToolResultMessage, ToolStarted, TurnEnded, TurnId, TurnStarted, UserMessage
from lanebus.errors import UnknownKind
from lanebus.handlers.projections import chain_to, children, find_loop, loop_messages, loop_turns, siblings, total_usage
from lanebus.handlers.projections.turns import TurnStatus, abandoned, loop_usage, roots
from lanebus.messages import AgentEnded, AgentStarted, Cost, ParallelLoopsEnded, ParallelLoopsStarted, StopReason, Usage
from lanebus.projections import TURNS, ToolRun, TurnsState
from tests.support.agent.folding import Said, fold, log_of, stored, through_json
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

LOOP = "s1.main.1"
USAGE = Usage(input=10, output=5, total_tokens=15, cost=Cost(total=Decimal("0.1")))
TOOK = Usage(input=10, output=5, total_tokens=15)


def turn_id(index: int = 0, loop: str = LOOP) -> TurnId:
    return TurnId(loop_id=loop, turn_index=index)


def started(loop: str = LOOP, parent: str | None = None) -> AgentStarted:
    return AgentStarted(loop_id=loop, agent="main", parent_loop_id=parent)


def goes_on(loop: str, parent: str) -> AgentStarted:
    return started(loop, parent).model_copy(update={"continuation": "default"})


def ended(loop: str = LOOP, usage: Usage = TOOK, *, stop_reason: StopReason = "stop", turns: int = 1) -> AgentEnded:
    return AgentEnded(loop_id=loop, stop_reason=stop_reason, turns=turns, usage=usage)


def turns(*messages: Said) -> TurnsState:
    state = fold(TURNS, log_of(*messages))
    assert through_json(TURNS, state) == state
    return state


def test_a_turn_with_a_tool_is_told_in_full() -> None:
    call = ToolCallBlock(id="t1", name="add", arguments={"a": 1})
    state = turns(
        UserMessage.text("add"),  # 1
        started(),
        TurnStarted(turn_id=turn_id(), trigger="user", prompts=(1,)),  # 3
        AssistantMessage(
            content=(call,), turn_id=turn_id(), stop_reason="toolUse", usage=USAGE, provider="acme", model="m1"
        ),  # 4
        ToolStarted(turn_id=turn_id(), tool_call_id="t1", tool_name="add"),  # 5
        ToolResultMessage(tool_call_id="t1", turn_id=turn_id()),  # 6
        ToolEnded(turn_id=turn_id(), tool_call_id="t1", tool_name="add", is_error=False, position=6),  # 7
        TurnEnded(turn_id=turn_id(), stop_reason="toolUse", usage=USAGE, message=4, tool_results=(6,)),  # 8
        ended(),  # 9
    )

    (turn,) = state.turns
    assert turn.turn_id == turn_id()
    assert (turn.loop_id, turn.trigger, turn.status, turn.stop_reason) == (LOOP, "user", "completed", "toolUse")
    assert (turn.prompts, turn.message, turn.provider, turn.model) == ((1,), 4, "acme", "m1")
    assert turn.tools == (ToolRun(id="t1", name="add", started=5.0, ended=7.0, attempts=1, is_error=False, result=6),)
    assert (turn.usage, turn.cost, turn.started, turn.ended) == (USAGE, USAGE.cost, 3.0, 8.0)
    (loop,) = state.loops
    assert (loop.loop_id, loop.agent, loop.status, loop.turns, loop.started, loop.ended) == (
        *(LOOP, "main", "completed", 1, 2.0, 9.0),
    )
    assert state.waiting == ()


@pytest.mark.parametrize("attempt", [2, None], ids=["numbered", "of an earlier version"])
def test_a_tool_call_that_is_started_again_has_two_attempts_and_its_first_start(attempt: int | None) -> None:
    call = ToolStarted(turn_id=turn_id(), tool_call_id="t1", tool_name="add")
    state = turns(started(), TurnStarted(turn_id=turn_id()), call, call.model_copy(update={"attempt": attempt}))
    (turn,) = state.turns
    assert turn.tools == (ToolRun(id="t1", name="add", started=3.0, attempts=2),)


@pytest.mark.parametrize(
    ("stop_reason", "status"),
    [
        ("stop", "completed"),
        ("toolUse", "completed"),
        ("length", "completed"),
        ("error", "failed"),
        ("aborted", "aborted"),
    ],
)
def test_the_stop_reason_gives_the_status(stop_reason: StopReason, status: TurnStatus) -> None:
    told = turns(TurnStarted(turn_id=turn_id()), TurnEnded(turn_id=turn_id(), stop_reason=stop_reason, usage=Usage()))
    imported = turns(AssistantMessage(stop_reason=stop_reason))

    assert told.turns[0].status == imported.turns[0].status == status


def test_imported_history_is_a_turn_for_each_answer_with_its_results() -> None:
    calls = (ToolCallBlock(id="t1", name="read"), ToolCallBlock(id="t2", name="bash"))
    state = turns(
        UserMessage.text("a"),  # 1
        UserMessage.text("b"),  # 2
        AssistantMessage(content=calls, stop_reason="toolUse", usage=USAGE),  # 3
        ToolResultMessage(tool_call_id="t1"),  # 4
        ToolResultMessage(tool_call_id="t2", is_error=True),  # 5
        AssistantMessage(),  # 6
        UserMessage.text("c"),  # 7
        AssistantMessage(stop_reason="aborted"),  # 8
        ToolResultMessage(tool_call_id="nobody asked"),
    )

    assert [(turn.turn_id, turn.prompts, turn.message, turn.status) for turn in state.turns] == [
        (None, (1, 2), 3, "completed"),
        (None, (), 6, "completed"),
        (None, (7,), 8, "aborted"),
    ]
    assert [(run.id, run.result, run.is_error) for run in state.turns[0].tools] == [("t1", 4, False), ("t2", 5, True)]
    assert state.turns[0].ended == 5.0
    assert state.loops == ()


def test_a_call_id_that_comes_again_is_answered_in_the_last_turn_that_has_it() -> None:
    call = AssistantMessage(content=(ToolCallBlock(id="call_0", name="f"),), stop_reason="toolUse")
    result = ToolResultMessage(tool_call_id="call_0")

    state = turns(call, result, call, result)

    assert [turn.tools[0].result for turn in state.turns] == [2, 4]


def test_a_turn_runs_until_it_is_told_to_have_ended() -> None:
    state = turns(started(), TurnStarted(turn_id=turn_id()), AssistantMessage(turn_id=turn_id(), usage=USAGE))

    assert (state.turns[0].status, state.turns[0].ended, state.turns[0].usage) == ("running", None, USAGE)
    assert state.loops[0].status == "running"


def test_a_loop_that_never_ended_is_aborted_once_the_next_one_starts_and_keeps_its_usage() -> None:
    state = turns(
        started(),
        TurnStarted(turn_id=turn_id()),
        AssistantMessage(turn_id=turn_id(), usage=USAGE, stop_reason="toolUse"),
        started("s1.main.2"),  # 4
    )

    (turn,) = state.turns
    assert (turn.status, turn.usage, turn.message, turn.ended) == ("aborted", USAGE, 3, 4.0)
    assert [(loop.loop_id, loop.status) for loop in state.loops] == [(LOOP, "aborted"), ("s1.main.2", "running")]


def test_a_loop_that_ends_aborts_the_turn_it_leaves_open() -> None:
    state = turns(started(), TurnStarted(turn_id=turn_id()), ended(stop_reason="aborted"))

    assert (state.turns[0].status, state.loops[0].status, state.loops[0].stop_reason) == (*(["aborted"] * 3),)


def test_a_loop_that_was_rejected_says_why() -> None:
    state = turns(started(), ended().model_copy(update={"rejection": "too long"}))
    assert (state.loops[0].status, state.loops[0].rejection) == ("rejected", "too long")


def test_loops_that_run_beside_each_other_do_not_end_each_other() -> None:
    state = turns(
        started(),
        started("s1.helper.1", parent=LOOP),
        ParallelLoopsStarted(loop_ids=("s1.a.1", "s1.b.1")),
        started("s1.a.1"),
        started("s1.b.1"),
    )
    assert [loop.status for loop in state.loops] == ["running"] * 4


def test_a_loop_that_goes_on_from_a_dead_one_ends_it() -> None:
    state = turns(started(), goes_on("s1.main.2", LOOP))
    assert [loop.status for loop in state.loops] == ["aborted", "running"]


def test_a_loop_or_turn_that_is_told_twice_is_there_once() -> None:
    again = (started(), TurnStarted(turn_id=turn_id(), prompts=(1,)))
    answer = AssistantMessage(turn_id=turn_id(), usage=USAGE)
    over = TurnEnded(turn_id=turn_id(), stop_reason="stop", usage=USAGE)

    state = turns(UserMessage.text("a"), *again, answer, *again, over, *again)

    assert len(state.loops) == len(state.turns) == 1
    assert (state.turns[0].status, state.turns[0].usage) == ("completed", USAGE)


def test_a_loop_that_is_told_again_after_its_end_stays_ended_and_ends_no_other() -> None:
    state = turns(started(), ended(), started("s1.main.2"), started())
    assert [(loop.loop_id, loop.status) for loop in state.loops] == [(LOOP, "completed"), ("s1.main.2", "running")]


def test_an_aborted_turn_that_a_worker_takes_up_again_runs_again() -> None:
    state = turns(
        started(), TurnStarted(turn_id=turn_id()), ended(stop_reason="aborted"), TurnStarted(turn_id=turn_id())
    )
    assert (state.turns[0].status, state.turns[0].ended) == ("running", None)


def test_stamped_messages_without_events_make_turns_of_their_loop() -> None:
    state = turns(
        UserMessage.text("hi").with_turn_id(turn_id()),
        AssistantMessage(turn_id=turn_id(), stop_reason="toolUse"),
        AssistantMessage(turn_id=turn_id(1)),
    )

    assert [(turn.turn_id, turn.prompts, turn.message, turn.status) for turn in state.turns] == [
        (turn_id(), (1,), 2, "completed"),
        (turn_id(1), (), 3, "completed"),
    ]
    assert [(loop.loop_id, loop.status, loop.turns) for loop in state.loops] == [(LOOP, "completed", 2)]


def test_prompts_that_are_stamped_before_the_loop_starts_do_not_hide_its_agent() -> None:
    state = turns(UserMessage.text("hi").with_turn_id(turn_id()), started(), TurnStarted(turn_id=turn_id()))
    assert (state.loops[0].agent, state.turns[0].prompts, state.turns[0].status) == ("main", (1,), "running")


def test_an_event_that_cannot_be_read_is_counted_and_ends_nothing() -> None:
    state = turns(
        ExtensionMessage.of("agent.turn.started", {"turnId": "no"}),
        ExtensionMessage.of("agent.from.the.future", {}),
        ExtensionMessage.of("progress", {"percent": 1}),
        AssistantMessage(),
    )
    assert (state.problems, len(state.turns)) == (2, 1)
    broken = Envelope("s1", 1, Lane.LLM, DecodeFailure(UnknownKind("x"), b"{}"), 0.0, "test")
    assert fold(TURNS, [broken]).problems == 1


def test_the_state_holds_no_text_of_a_message() -> None:
    secret = "the model's words"
    call = ToolCallBlock(id="t", name="f", arguments={"a": secret})
    state = turns(UserMessage.text(secret), AssistantMessage(content=(call,), error_message=secret))
    assert secret.encode() not in TURNS.dump(state)


# --- how loops hang together and what each took --------------------------------------------------------------------


def said(loop: str, index: int = 0) -> AssistantMessage:
    return AssistantMessage(turn_id=TurnId(loop_id=loop, turn_index=index), usage=TOOK)


def test_loops_that_go_on_from_each_other_are_a_tree() -> None:
    state = turns(
        *(started("s.m.1"), ended("s.m.1")),
        *(goes_on("s.m.2", "s.m.1"), ended("s.m.2")),
        *(goes_on("s.m.3", "s.m.1"), ended("s.m.3")),
        *(goes_on("s.m.4", "s.m.3"), ended("s.m.4")),
        *(goes_on("s.x.1", "t.m.9"), ended("s.x.1")),
    )
    assert roots(state) == ("s.m.1", "s.x.1")
    assert children(state, "s.m.1") == ("s.m.2", "s.m.3")
    assert chain_to(state, "s.m.4") == ("s.m.1", "s.m.3", "s.m.4")
    assert chain_to(state, "none") == ()
    loop = find_loop(state, "s.m.4")
    assert loop is not None
    assert loop.continuation == "default"


def test_parents_that_run_in_a_circle_end_the_chain() -> None:
    state = turns(goes_on("a", "b"), ended("a"), goes_on("b", "c"), ended("b"), goes_on("c", "a"), ended("c"))
    assert chain_to(state, "a") == ("c", "b", "a")
    assert chain_to(turns(goes_on("a", "a")), "a") == ("a",)


def test_a_loop_took_what_its_turns_took_and_what_its_end_repeats_counts_only_without_them() -> None:
    state = turns(
        *(started("s.m.1"), said("s.m.1"), said("s.m.1", 1), ended("s.m.1", Usage(input=1), turns=2)),
        *(goes_on("s.m.2", "s.m.1"), ended("s.m.2")),
        AssistantMessage(usage=TOOK),
    )
    assert loop_usage(state, "s.m.1") == TOOK.combine(TOOK)
    assert loop_usage(state, "s.m.2") == TOOK
    assert loop_usage(state, "none") == Usage()
    assert total_usage(state) == TOOK.combine(TOOK).combine(TOOK).combine(TOOK)


def test_a_tool_s_loop_is_known_before_and_after_it_begins() -> None:
    turn = TurnId(loop_id="s.m.1", turn_index=0)
    tool = ToolEnded(turn_id=turn, tool_call_id="c", tool_name="ask", is_error=False, child_loop_id="s.x.1")
    child = [goes_on("s.x.1", "s.m.1"), ended("s.x.1")]
    for order in ([tool, *child], [*child, tool]):
        state = turns(started("s.m.1"), TurnStarted(turn_id=turn), *order)
        assert [run.child_loop for run in state.turns[0].tools] == ["s.x.1"]
        assert children(state, "s.m.1") == ("s.x.1",)


def test_of_loops_side_by_side_one_is_taken() -> None:
    pair = ParallelLoopsStarted(loop_ids=("s.a.1", "s.b.1"))
    chosen = ParallelLoopsEnded(selected_loop_id="s.b.1", selected_config_index=1, evaluation_usage=Usage(input=99))
    state = turns(
        *(pair, started("s.a.1"), started("s.b.1"), ended("s.a.1"), ended("s.b.1"), chosen),
        *(started("s.m.1"), ended("s.m.1")),
    )
    assert siblings(state, "s.a.1") == siblings(state, "s.b.1") == ("s.a.1", "s.b.1")
    assert (siblings(state, "s.m.1"), siblings(state, "none")) == ((), ())
    assert [loop.is_selected for loop in state.loops] == [False, True, None]
    assert [loop.status for loop in state.loops] == ["completed"] * 3
    assert total_usage(state).input == 30  # what chose among them is not in it


def test_a_loop_that_never_ended_keeps_its_messages_and_their_usage() -> None:
    turn = TurnId(loop_id="s.m.1", turn_index=0)
    prompt = UserMessage.text("x").with_turn_id(turn)
    open_state = turns(started("s.m.1"), TurnStarted(turn_id=turn), prompt, said("s.m.1"))
    state = abandoned(open_state, 99.0)
    (loop,) = state.loops
    (cut,) = loop_turns(state, "s.m.1")
    assert (loop.status, loop.ended, cut.status, state.running) == ("aborted", 99.0, "aborted", ())
    assert loop_messages(state, "s.m.1") == (3, 4)
    assert loop_usage(state, "s.m.1") == TOOK
    assert abandoned(state, 100.0) == state


def test_a_turn_is_found_by_its_index_and_not_by_its_place() -> None:
    state = turns(started("s.m.1"), said("s.m.1", 1), said("s.m.1", 0))
    found = state.turn(TurnId(loop_id="s.m.1", turn_index=0))
    assert found is not None
    assert found.message == 3
    assert state.turn(TurnId(loop_id="s.m.1", turn_index=2)) is None


@pytest.mark.full
def test_turns_are_listed_by_loop_on_the_command_line(lanebus: CommandLine) -> None:
    log = (
        *(started("s.m.1"), said("s.m.1"), ended("s.m.1")),
        *(goes_on("s.m.2", "s.m.1"), said("s.m.2"), said("s.m.2", 1), ended("s.m.2")),
    )
    lines = [stored(each).to_json() for each in log]
    assert lanebus("publish", "s", "--json", stdin="\n".join(lines)).code == 0
    first, second = objects(lanebus("turns", "s", "--loops").out)
    assert (first["loop_id"], first["children"], first["chain"]) == ("s.m.1", ["s.m.2"], ["s.m.1"])
    assert (second["parent"], second["chain"]) == ("s.m.1", ["s.m.1", "s.m.2"])
    assert (second["turns"], second["messages"]) == (2, [5, 6])
    shown = lanebus("turns", "s", "--loops", "--table").out.splitlines()
    assert [line.split()[0] for line in shown] == ["loop", "s.m.1", "s.m.2", "3"]
    assert lanebus("publish", "t", "hi").code == 0
    assert lanebus("turns", "t", "--loops", "--table").err == ("session 't' has no loops: no agent has worked on it\n")
