"""The cost of one more entry does not grow with the calls of a turn, with unanswered messages, or with loops."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from lanebus import AssistantMessage, Envelope, Lane, TextBlock, ToolCallBlock, ToolResultMessage, Usage, UserMessage
from lanebus.bus.messages import AgentEnded, AgentStarted, Publishable, ToolEnded, ToolStarted, TurnEnded, TurnStarted
from lanebus.handlers.projections import CARD, SESSIONS, STATUS, TIMELINE, TURNS, USAGE, Projection
from lanebus.messages import ExtensionMessage, TurnId

__all__ = ()


def started(turn: TurnId, *prompts: int) -> Iterator[Publishable]:
    yield AgentStarted(loop_id=turn.loop_id, agent="a", continuation="initial").as_extension()
    yield TurnStarted(turn_id=turn, trigger="user", prompts=prompts).as_extension()


def calls_of_one_turn(count: int) -> Iterator[Publishable]:
    turn = TurnId(loop_id="s.main.1", turn_index=0)
    yield UserMessage.text("hi")
    yield from started(turn, 1)
    calls = [ToolCallBlock(id=f"c{number}", name="t", arguments={}) for number in range(count)]
    yield AssistantMessage(content=tuple(calls), stop_reason="toolUse", turn_id=turn)
    for call in calls:
        yield ToolStarted(turn_id=turn, tool_call_id=call.id, tool_name="t").as_extension()
    for call in calls:
        yield ToolResultMessage.of(call, "ok").model_copy(update={"turn_id": turn})
        yield ToolEnded(turn_id=turn, tool_call_id=call.id, tool_name="t", is_error=False).as_extension()


def unanswered_messages(count: int) -> Iterator[Publishable]:
    for _ in range(count):
        yield UserMessage.text("hi")
    yield from started(TurnId(loop_id="s.main.1", turn_index=0), *range(1, count + 1))


def loops(count: int) -> Iterator[Publishable]:
    for number in range(count):
        turn = TurnId(loop_id=f"s.main.{number + 1}", turn_index=0)
        yield UserMessage.text("hi")
        yield from started(turn, 6 * number + 1)
        yield AssistantMessage(content=(TextBlock(text="ok"),), stop_reason="stop", turn_id=turn)
        yield TurnEnded(turn_id=turn, stop_reason="stop", usage=Usage()).as_extension()
        yield AgentEnded(loop_id=turn.loop_id, stop_reason="stop", usage=Usage(), turns=1).as_extension()


def steps(projection: Projection[object], messages: Iterator[Publishable]) -> float:
    """Fold messages, and return the number of Python calls, and of steps of generators, for each message."""
    entries: list[Envelope] = []
    for position, message in enumerate(messages, 1):
        lane = Lane.EXTENSION if isinstance(message, ExtensionMessage) else Lane.LLM
        entries.append(Envelope("s", position, lane, message, float(position), "p"))
    state, count = projection.initial, 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for entry in entries:
            state = projection.evolve(state, entry)
    finally:
        sys.setprofile(before)
    return count / len(entries)


@pytest.mark.full
@pytest.mark.parametrize("projection", [TURNS, TIMELINE, STATUS, CARD, SESSIONS, USAGE], ids=lambda each: each.name)
@pytest.mark.parametrize("history", [calls_of_one_turn, unanswered_messages, loops])
def test_an_entry_of_a_long_history_takes_as_many_steps_as_one_of_a_short_history(
    projection: Projection[object], history: Callable[[int], Iterator[Publishable]]
) -> None:
    assert steps(projection, history(800)) < 1.5 * steps(projection, history(200)) + 2
