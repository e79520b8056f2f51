"""What a session's agent does, in a word."""

import pytest

from lanebus.bus.messages import ToolWaiting, TurnId, TurnStarted, Usage
from lanebus.handlers.projections import STATUS, Doing, Status, doing, own_loop, waiting_calls
from lanebus.messages import AgentEnded, AgentStarted, Approve, ControlAnswered, Handoff, Pause, Resume, ToolStarted
from tests.support.agent.folding import Said, fold, log_of

__all__ = ()

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
STARTED = AgentStarted(loop_id="s1.main.1", agent="a")
TURN_STARTED = TurnStarted(turn_id=TURN)
TOOL = ToolStarted(turn_id=TURN, tool_call_id="c", tool_name="t")
WAITING = ToolWaiting(turn_id=TURN, tool_call_id="w", tool_name="t")
OTHER = ToolWaiting(turn_id=TURN, tool_call_id="v", tool_name="t")
APPROVE = Approve(turn_id=TURN, tool_call_id="w")
ENDED = AgentEnded(loop_id="s1.main.1", stop_reason="stop", turns=1, usage=Usage())
PAUSED = AgentEnded(loop_id="s1.main.1", stop_reason="paused", turns=1, usage=Usage())


def applied(position: int) -> ControlAnswered:
    return ControlAnswered(control=position, outcome="applied")


CASES: dict[str, tuple[list[Said], Doing]] = {
    "nothing was begun": ([], "idle"),
    "a loop begins": ([STARTED], "model"),
    "a turn asks": ([STARTED, TURN_STARTED], "model"),
    "a tool runs": ([STARTED, TURN_STARTED, TOOL], "tools"),
    "one of two waits": ([STARTED, TURN_STARTED, TOOL, WAITING], "waiting"),
    "it was asked to be let run": ([STARTED, TURN_STARTED, WAITING, APPROVE], "queued"),
    "one of two was asked to be let run": ([STARTED, TURN_STARTED, WAITING, OTHER, APPROVE], "waiting"),
    "it was let run": ([STARTED, TURN_STARTED, WAITING, APPROVE, applied(4)], "model"),
    "the loop is over": ([STARTED, TURN_STARTED, TOOL, ENDED], "idle"),
    "a pause is asked for": ([STARTED, Pause()], "model"),
    "it is paused": ([STARTED, Pause(), applied(2), PAUSED], "paused"),
    "it is handed off": ([Handoff(to="me"), applied(1)], "handoff"),
    "it is resumed": ([Pause(), applied(1), Resume(), applied(3)], "idle"),
}


def folded(messages: list[Said]) -> Status:
    return fold(STATUS, log_of(*messages))


@pytest.mark.parametrize("case", CASES)
def test_what_an_agent_does(case: str) -> None:
    messages, expected = CASES[case]
    assert doing("s1", folded(messages)) == expected


def test_a_fork_does_not_do_what_its_parent_does() -> None:
    status = folded([STARTED, TURN_STARTED, WAITING])
    assert doing("fork", status) == "idle"
    assert own_loop("fork", status) is None


def test_calls_that_wait_are_named_until_a_person_has_answered_them() -> None:
    loop = own_loop("s1", folded([STARTED, TURN_STARTED, WAITING]))
    assert loop is not None
    assert [call.tool_call_id for call in waiting_calls(loop)] == ["w"]
    loop = own_loop("s1", folded([STARTED, TURN_STARTED, WAITING, APPROVE, applied(4)]))
    assert loop is not None
    assert waiting_calls(loop) == ()
