"""A run as protocols show it: the recorded sessions, told as events."""

from collections import Counter
from collections.abc import Iterable

import pytest

from lanebus import AssistantMessage, Envelope, ToolCallBlock, ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentStarted, ControlAnswered, Deny, StopReason, ToolStarted, ToolWaiting
from lanebus.handlers.protocols.run import RunFold
from lanebus.handlers.protocols.run_events import (
    AnswerSettled,
    ResultAdded,
    RunEvent,
    RunRested,
    StepBegun,
    StepEnded,
    TextAdded,
)
from lanebus.messages import TurnId
from tests.support.agent.agents import fresh_bus, log
from tests.support.agent.folding import log_of
from tests.support.golden.deltas import with_deltas
from tests.support.golden.sessions import FOLDERS, envelopes, read_session

SESSIONS = {folder.name: envelopes(read_session(folder), f"golden-{folder.name}") for folder in FOLDERS}


def told(entries: Iterable[Envelope], fold: RunFold | None = None) -> list[RunEvent]:
    fold = fold or RunFold()
    return [event for entry in entries for event in fold.add(entry)]


def text(events: Iterable[RunEvent], message_id: str) -> str:
    return "".join(each.text for each in events if isinstance(each, TextAdded) and each.message_id == message_id)


def rests(name: str) -> list[RunRested]:
    return [event for event in told(SESSIONS[name]) if isinstance(event, RunRested)]


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("tools", "finished"),
        ("retry", "finished"),
        ("steer", "finished"),
        ("cut", "finished"),
        ("abort", "aborted"),
        ("pause", "paused"),
        ("approval", "waiting"),
    ],
)
def test_a_recorded_session_rests_once_for_its_reason(name: str, outcome: str) -> None:
    assert [each.outcome for each in rests(name)] == [outcome]


@pytest.mark.parametrize(("stop_reason", "outcome"), [("error", "failed"), ("aborted", "aborted")])
def test_a_failure_without_a_turn_ends_the_open_loop(stop_reason: StopReason, outcome: str) -> None:
    """The record of a session that can no longer be read, and the abort of a loop that a fork took over."""
    started = AgentStarted(loop_id="s1.main.1", agent="agent", continuation="initial")
    begun = log_of(UserMessage.text("hi"), started.as_extension())
    fold = RunFold()
    assert [event for event in told(begun, fold) if isinstance(event, RunRested)] == []
    failed = AssistantMessage(stop_reason=stop_reason, metadata={"lanebus.readUpTo": 1})
    last = told(log_of(UserMessage.text("hi"), started.as_extension(), failed)[2:], fold)[-1]
    assert isinstance(last, RunRested)
    assert last.outcome == outcome


@pytest.mark.parametrize("name", SESSIONS)
def test_each_step_that_began_ends_before_the_next(name: str) -> None:
    open_steps = list[object]()
    for event in told(SESSIONS[name]):
        match event:
            case StepBegun(turn_id=turn_id):
                assert open_steps == []
                open_steps.append(turn_id)
            case StepEnded(turn_id=turn_id):
                assert open_steps.pop() == turn_id
            case _:
                pass
    assert open_steps == []


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_live_pieces_and_settled_text_together_repeat_nothing(name: str, size: int) -> None:
    whole, live = told(SESSIONS[name]), told(with_deltas(SESSIONS[name], size))
    for event in live:
        if isinstance(event, AnswerSettled) and event.message is not None and event.outcome != "superseded":
            assert not event.is_replaced
            assert text(live, event.message_id) == event.message.text_content() == text(whole, event.message_id)


@pytest.mark.parametrize("name", SESSIONS)
def test_a_preview_that_stopped_in_the_middle_is_completed_by_the_message(name: str) -> None:
    pieces = [*with_deltas(SESSIONS[name], 3)]
    # Of each run of live deltas, only the first half arrived.
    sizes = Counter(each.position for each in pieces if each.delta)
    halves = told(each for each in pieces if each.delta <= sizes[each.position] // 2)
    settled = [each for each in halves if isinstance(each, AnswerSettled)]
    assert settled
    for event in settled:
        if event.message is not None and event.outcome != "superseded":
            assert text(halves, event.message_id) == event.message.text_content()


async def test_a_started_call_that_must_not_run_again_is_not_shown_as_denied() -> None:
    turn = TurnId(loop_id="s1.main.1", turn_index=0)
    lost, asked = ToolCallBlock(id="c1", name="pay"), ToolCallBlock(id="c2", name="pay")
    async with fresh_bus() as bus:
        session = bus.session("s1")
        await session.publish(
            AssistantMessage(content=(lost, asked), stop_reason="toolUse", turn_id=turn),
            ToolStarted(turn_id=turn, tool_call_id="c1", tool_name="pay").as_extension(),
            ToolWaiting(turn_id=turn, tool_call_id="c1", tool_name="pay", why="unknown").as_extension(),
            ToolWaiting(turn_id=turn, tool_call_id="c2", tool_name="pay").as_extension(),
        )
        for call in (lost, asked):
            command = await session.publish(Deny(turn_id=turn, tool_call_id=call.id).as_extension())
            await session.publish(
                ControlAnswered(control=command.position, outcome="applied").as_extension(),
                ToolResultMessage.of(call, "an error", is_error=True).with_turn_id(turn),
            )
        shown = [event for event in told(await log(session)) if isinstance(event, ResultAdded)]
        assert [event.is_denied for event in shown] == [False, True]
