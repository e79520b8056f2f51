"""The timeline of a session: when and where its turns, calls, tools, waits and compactions began and ended."""

from lanebus import AssistantMessage, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.bus.messages import Deny, MessageStarted, SessionLinked, ToolEnded, ToolStarted, ToolWaiting, TurnEnded
from lanebus.handlers.projections import TIMELINE, CallMark, TimelineState, ToolMark
from lanebus.messages import (
    AgentEnded,
    AgentStarted,
    Approve,
    CompactionEnded,
    CompactionStarted,
    ControlAnswered,
    TurnId,
    TurnStarted,
)
from tests.support.agent.folding import Said, fold, log_of, through_json

__all__ = ()

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
CALL = ToolCallBlock(id="c1", name="rm", arguments={})
ASKED = AssistantMessage(content=(CALL,), turn_id=TURN, stop_reason="toolUse", id="m1")


def timeline(*messages: Said) -> TimelineState:
    state = fold(TIMELINE, log_of(*messages))
    assert through_json(TIMELINE, state) == state
    return state


def test_a_call_that_waited_for_a_person_has_the_times_and_positions_of_question_and_decision() -> None:
    state = timeline(
        UserMessage.text("go"),  # 1
        AgentStarted(loop_id=TURN.loop_id, agent="main"),  # 2
        TurnStarted(turn_id=TURN, prompts=(1,)),  # 3
        MessageStarted(turn_id=TURN, message_id="m1"),  # 4
        ASKED,  # 5
        ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm"),  # 6
        Approve(turn_id=TURN, tool_call_id="c1", by="ann"),  # 7
        ControlAnswered(control=7, outcome="applied"),  # 8
        ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm"),  # 9
        ToolResultMessage(tool_call_id="c1", turn_id=TURN),  # 10
        ToolEnded(turn_id=TURN, tool_call_id="c1", tool_name="rm", is_error=False, position=10),  # 11
        TurnEnded(turn_id=TURN, stop_reason="toolUse", usage=Usage(), message=5, tool_results=(10,)),  # 12
        AgentEnded(loop_id=TURN.loop_id, stop_reason="stop", turns=1, usage=Usage()),  # 13
    )
    (mark,) = state.marks
    assert (mark.position, mark.last, mark.entries, mark.ended_at) == (3, 12, 9, 12)
    (call,) = mark.calls
    assert (call.position, call.started, call.ended, call.answer, call.stop_reason) == (4, 4.0, 5.0, 5, "toolUse")
    (tool,) = mark.tools
    assert (tool.position, tool.ended_at) == (9, 11)
    (wait,) = tool.waits
    assert (wait.position, wait.since, wait.until, wait.decision, wait.command, wait.by) == (
        *(6, 6.0, 8.0, "approve", 7, "ann"),
    )
    assert [(loop.position, loop.ended_at) for loop in state.loops] == [(2, 13)]
    assert state.decisions == {}


def test_a_wait_goes_on_after_a_late_command_and_ends_with_the_call() -> None:
    waiting = (TurnStarted(turn_id=TURN), ASKED, ToolWaiting(turn_id=TURN, tool_call_id="c1", tool_name="rm"))
    deny = Deny(turn_id=TURN, tool_call_id="c1")
    state = timeline(*waiting, deny, ControlAnswered(control=4, outcome="late"))
    assert [wait.until for mark in state.marks for tool in mark.tools for wait in tool.waits] == [None]
    ended = ToolEnded(turn_id=TURN, tool_call_id="c1", tool_name="rm", is_error=True, outcome="skipped")
    state = timeline(*waiting, ended)
    ((wait,),) = (tool.waits for mark in state.marks for tool in mark.tools)
    assert (wait.until, wait.decision) == (4.0, None)


def test_a_call_whose_worker_was_lost_ends_when_the_next_worker_calls_again() -> None:
    state = timeline(
        TurnStarted(turn_id=TURN),
        MessageStarted(turn_id=TURN, message_id="m1"),
        TurnStarted(turn_id=TURN),
        MessageStarted(turn_id=TURN, message_id="m2"),
        AssistantMessage.text("hi").model_copy(update={"turn_id": TURN, "id": "m2"}),
    )
    (mark,) = state.marks
    assert mark.calls == (
        CallMark(position=2, started=2.0, ended=4.0, message_id="m1"),
        CallMark(position=4, started=4.0, ended=5.0, answer=5, stop_reason="stop", message_id="m2"),
    )


def test_a_tool_call_names_the_session_of_its_sub_agent_and_a_link_to_the_own_parent_counts_for_nothing() -> None:
    link = {"turn_id": TURN, "tool_call_id": "c1", "agent": "helper"}
    state = timeline(
        TurnStarted(turn_id=TURN),
        ASKED,
        SessionLinked(parent="s1", child="s2", **link),  # type: ignore[arg-type]  # as their names say
        SessionLinked(parent="s0", child="s1", **link),  # type: ignore[arg-type]  # as their names say
        ToolStarted(turn_id=TURN, tool_call_id="c1", tool_name="rm", attempt=2),
    )
    assert [mark.tools for mark in state.marks] == [(ToolMark(id="c1", position=5, child="s2", child_agent="helper"),)]


def test_imported_turns_have_the_times_of_their_authors() -> None:
    history = (
        UserMessage.text("go").model_copy(update={"timestamp": 1_000_000}),
        AssistantMessage.text("hi").model_copy(update={"timestamp": 1_004_000}),
    )
    state = fold(TIMELINE, [each._replace(is_imported=True) for each in log_of(*history)])
    (turn,), (mark,) = state.turns.turns, state.marks
    (call,) = mark.calls
    assert (call.started, call.ended, turn.ended, mark.position, mark.last) == (None, 1004.0, 1004.0, 2, 2)


def test_a_call_without_a_recorded_start_has_no_time() -> None:
    (mark,) = timeline(AssistantMessage.text("hi")).marks
    assert [(call.started, call.ended) for call in mark.calls] == [(None, 1.0)]


def test_a_compaction_has_its_begin_its_end_and_the_tokens_before_and_after() -> None:
    state = timeline(
        CompactionStarted(loop_id=TURN.loop_id, estimated_tokens=900, message_count=3),
        CompactionEnded(
            loop_id=TURN.loop_id,
            messages_before=3,
            messages_after=1,
            estimated_tokens_before=900,
            estimated_tokens_after=90,
        ),
    )
    (mark,) = state.compactions
    assert (mark.position, mark.ended_at, mark.started, mark.ended, mark.status) == (1, 2, 1.0, 2.0, "completed")
    assert (mark.tokens_before, mark.tokens_after) == (900, 90)
