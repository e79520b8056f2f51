"""How loops hang together and what each took: given a session's log, what its turns' state answers."""

import pytest

from lanebus.bus.messages import AssistantMessage, ToolEnded, TurnEnded, TurnId, TurnStarted, Usage, UserMessage
from lanebus.handlers.projections import chain_to, children, find_loop, loop_messages, loop_turns, siblings, total_usage
from lanebus.handlers.projections.turns import abandoned, loop_usage, roots
from lanebus.messages import AgentEnded, AgentStarted, ParallelLoopsEnded, ParallelLoopsStarted
from lanebus.projections import TURNS, TurnsState
from tests.support.agent.folding import Said, fold, log_of, stored, through_json
from tests.support.cli.command_line import CommandLine, objects

__all__ = ()

TOOK = Usage(input=10, output=5, total_tokens=15)


def state_of(*said: Said) -> TurnsState:
    state = fold(TURNS, log_of(*said))
    assert through_json(TURNS, state) == state
    return state


def started(loop: str, parent: str | None = None) -> AgentStarted:
    return AgentStarted(
        loop_id=loop, agent="a", parent_loop_id=parent, continuation="initial" if parent is None else "default"
    )


def ended(loop: str, usage: Usage = TOOK, turns: int = 0) -> AgentEnded:
    return AgentEnded(loop_id=loop, stop_reason="stop", turns=turns, usage=usage)


def said(loop: str, index: int = 0) -> AssistantMessage:
    return AssistantMessage(turn_id=TurnId(loop_id=loop, turn_index=index), usage=TOOK)


def test_loops_that_go_on_from_each_other_are_a_tree() -> None:
    state = state_of(
        *(started("s.m.1"), ended("s.m.1")),
        *(started("s.m.2", "s.m.1"), ended("s.m.2")),
        *(started("s.m.3", "s.m.1"), ended("s.m.3")),
        *(started("s.m.4", "s.m.3"), ended("s.m.4")),
        *(started("s.x.1", "t.m.9"), ended("s.x.1")),
    )
    assert roots(state) == ("s.m.1", "s.x.1")
    assert children(state, "s.m.1") == ("s.m.2", "s.m.3")
    assert chain_to(state, "s.m.4") == ("s.m.1", "s.m.3", "s.m.4")
    assert chain_to(state, "none") == ()
    loop = find_loop(state, "s.m.4")
    assert loop is not None
    assert loop.continuation == "default"


def test_parents_that_run_in_a_circle_end_the_chain() -> None:
    state = state_of(started("a", "b"), ended("a"), started("b", "c"), ended("b"), started("c", "a"), ended("c"))
    assert chain_to(state, "a") == ("c", "b", "a")
    assert chain_to(state_of(started("a", "a")), "a") == ("a",)


def test_a_loop_took_what_its_turns_took_and_what_its_end_repeats_counts_only_without_them() -> None:
    state = state_of(
        *(started("s.m.1"), said("s.m.1"), said("s.m.1", 1), ended("s.m.1", Usage(input=1), 2)),
        *(started("s.m.2", "s.m.1"), ended("s.m.2")),
        AssistantMessage(usage=TOOK),
    )
    assert loop_usage(state, "s.m.1") == TOOK.combine(TOOK)
    assert loop_usage(state, "s.m.2") == TOOK
    assert loop_usage(state, "none") == Usage()
    assert total_usage(state) == TOOK.combine(TOOK).combine(TOOK).combine(TOOK)


def test_a_tool_s_loop_is_known_before_and_after_it_begins() -> None:
    turn = TurnId(loop_id="s.m.1", turn_index=0)
    tool = ToolEnded(turn_id=turn, tool_call_id="c", tool_name="ask", is_error=False, child_loop_id="s.x.1")
    child = [started("s.x.1", "s.m.1"), ended("s.x.1")]
    for order in ([tool, *child], [*child, tool]):
        state = state_of(started("s.m.1"), TurnStarted(turn_id=turn), *order)
        assert [run.child_loop for run in state.turns[0].tools] == ["s.x.1"]
        assert children(state, "s.m.1") == ("s.x.1",)


def test_of_loops_side_by_side_one_is_taken() -> None:
    pair = ParallelLoopsStarted(loop_ids=("s.a.1", "s.b.1"))
    chosen = ParallelLoopsEnded(selected_loop_id="s.b.1", selected_config_index=1, evaluation_usage=Usage(input=99))
    state = state_of(
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
    open_state = state_of(started("s.m.1"), TurnStarted(turn_id=turn), prompt, said("s.m.1"))
    state = abandoned(open_state, 99.0)
    (loop,) = state.loops
    (cut,) = loop_turns(state, "s.m.1")
    assert (loop.status, loop.ended, cut.status, state.running) == ("aborted", 99.0, "aborted", ())
    assert loop_messages(state, "s.m.1") == (3, 4)
    assert loop_usage(state, "s.m.1") == TOOK
    assert abandoned(state, 100.0) == state


def test_a_loop_that_is_told_to_begin_twice_stays_what_it_was() -> None:
    begun: list[Said] = [started("s.m.1"), said("s.m.1")]
    end = [TurnEnded(turn_id=TurnId(loop_id="s.m.1", turn_index=0), stop_reason="stop", usage=TOOK), ended("s.m.1")]
    state = state_of(*begun, started("s.m.1"), *end)
    assert [loop.status for loop in state.loops] == ["completed"]
    assert len(state.turns) == 1
    assert loop_usage(state, "s.m.1") == TOOK


def test_a_turn_is_found_by_its_index_and_not_by_its_place() -> None:
    state = state_of(started("s.m.1"), said("s.m.1", 1), said("s.m.1", 0))
    found = state.turn(TurnId(loop_id="s.m.1", turn_index=0))
    assert found is not None
    assert found.message == 3
    assert state.turn(TurnId(loop_id="s.m.1", turn_index=2)) is None


@pytest.mark.full
def test_turns_are_listed_by_loop_on_the_command_line(lanebus: CommandLine) -> None:
    log = (
        *(started("s.m.1"), said("s.m.1"), ended("s.m.1")),
        *(started("s.m.2", "s.m.1"), said("s.m.2"), said("s.m.2", 1), ended("s.m.2")),
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
