"""The decision for an open call, as a table of status, tool and decision."""

from collections.abc import Mapping
from typing import Literal

import pytest

from lanebus.agent import FunctionTool, tool
from lanebus.bus.messages import Approve, AssistantMessage, Control, Deny, ToolCallBlock, ToolWaiting, TurnId
from lanebus.handlers.agent.tools.tool_call import (
    AnswerCall,
    AskPerson,
    AwaitPerson,
    StartCall,
    ToolDecision,
    decide_calls,
    decide_open_call,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.projections import Command, LoopStatus, Status
from lanebus.integration import OpenAnswer
from lanebus.messages import ExtensionMessage
from tests.support.agent.loop_logs import view_of

TURN = TurnId(loop_id="s1.main.1", turn_index=0)
CALL, OTHER = ToolCallBlock(id="c1", name="a"), ToolCallBlock(id="c2", name="a")
APPROVED = Approve(turn_id=TURN, tool_call_id="c1")
OTHERWISE = Approve(turn_id=TURN, tool_call_id="c1", call_hash="0" * 64)
DENIED = Deny(turn_id=TURN, tool_call_id="c1", reason="no")


def subject(
    *, idempotent: bool = False, on_unknown: Literal["tell", "ask"] = "tell", approval: bool = False
) -> FunctionTool:
    return tool(name="a", idempotent=idempotent, on_unknown=on_unknown, approval=approval)(lambda: "A")


PLAIN, SAFE, ASKS = subject(), subject(idempotent=True), subject(on_unknown="ask")
NEEDS, NEEDS_SAFE = subject(approval=True), subject(approval=True, idempotent=True)


def loop(
    *, started: int = 0, attempts: int = 0, asked: str | None = None, said: Control | None = None, at: int = 0
) -> LoopStatus:
    """The status of the call: positions, and the question to a person with the answer."""
    waiting: Mapping[str, ToolWaiting] = {}
    if asked is not None:
        event = {"turn_id": TURN, "tool_call_id": "c1", "tool_name": "a", "why": asked}
        waiting = {"c1": ToolWaiting.model_validate(event)}
    return LoopStatus(
        loop_id="s1.main.1",
        started=0.0,
        turn=TURN,
        calls_started={"c1": started} if started else {},
        calls_attempts={"c1": attempts} if attempts else {},
        calls_waiting=waiting,
        calls_answered={} if said is None else {"c1": Command(position=at, message=said.as_extension())},
    )


FRESH = loop()
STARTED = loop(started=5, attempts=1)


@pytest.mark.parametrize(
    ("known", "whose", "expected"),
    [
        (FRESH, None, "Tool a not found"),
        (FRESH, PLAIN, StartCall(1)),
        (FRESH, NEEDS, AskPerson("approval", 0)),
        (loop(asked="approval"), NEEDS, AwaitPerson()),
        (loop(asked="approval"), PLAIN, AwaitPerson()),  # asked before the tool changed: the answer still counts
        (loop(asked="approval", said=APPROVED, at=7), NEEDS, StartCall(1)),
        (
            loop(asked="approval", said=APPROVED.model_copy(update={"call_hash": CALL.call_hash}), at=7),
            NEEDS,
            StartCall(1),
        ),
        (loop(asked="approval", said=OTHERWISE, at=7), NEEDS, "Not run: the user approved this call with other"),
        (loop(started=5, attempts=1, asked="unknown", said=OTHERWISE, at=7), ASKS, "Unknown outcome: "),
        (loop(asked="approval", said=DENIED, at=7), NEEDS, "Denied by the user"),
        (loop(said=APPROVED, at=4), NEEDS, StartCall(1)),  # before the question
        (STARTED, SAFE, StartCall(2)),
        (STARTED, NEEDS_SAFE, StartCall(2)),
        (STARTED, PLAIN, "Unknown outcome: "),
        (STARTED, NEEDS, "Unknown outcome: "),
        (STARTED, ASKS, AskPerson("unknown", 1)),
        (loop(started=5, attempts=3), SAFE, StartCall(4)),
        (loop(started=5, attempts=1, asked="unknown"), ASKS, AwaitPerson()),
        (loop(started=5, attempts=1, asked="unknown", said=APPROVED, at=7), ASKS, StartCall(2)),
        (loop(started=5, attempts=1, asked="unknown", said=DENIED, at=7), ASKS, "Unknown outcome: "),
        # Started after the answer: that was for the lost attempt.
        (loop(started=8, attempts=2, asked="unknown", said=APPROVED, at=7), ASKS, AskPerson("unknown", 2)),
        (loop(started=8, attempts=1, asked="approval", said=APPROVED, at=7), NEEDS, "Unknown outcome: "),
        (loop(started=8, attempts=1, asked="approval", said=APPROVED, at=7), NEEDS_SAFE, StartCall(2)),
    ],
)
def test_how_an_open_call_goes_on(known: LoopStatus, whose: FunctionTool | None, expected: ToolDecision | str) -> None:
    found = decide_open_call(CALL, whose, known)
    if isinstance(expected, str):
        assert isinstance(found, AnswerCall)
        assert found.result.is_error
        assert found.result.text_content().startswith(expected)
    else:
        assert found == expected


def answer(turn: TurnId = TURN) -> OpenAnswer:
    message = AssistantMessage(content=(CALL, OTHER), stop_reason="toolUse", turn_id=turn)
    return OpenAnswer(3, message, turn, ())


def test_the_status_of_another_turn_does_not_affect_a_call() -> None:
    later = answer(TurnId(loop_id="s1.main.2", turn_index=0))
    decided = decide_calls(later, {"a": PLAIN}, Status(loop=STARTED))
    assert [decision for _, decision in decided.values()] == [StartCall(1)] * 2


def is_waiting(status: Status) -> bool:
    return SessionSnapshot(view_of(answer().message).context, status).loop_state.is_waiting


def test_an_answer_waits_for_a_person_if_all_its_open_calls_do() -> None:
    one = loop(asked="approval")
    both = one.model_copy(update={"calls_waiting": {**one.calls_waiting, "c2": one.calls_waiting["c1"]}})
    assert not is_waiting(Status())
    assert not is_waiting(Status(loop=one))
    assert is_waiting(Status(loop=both))
    said = Command(position=9, message=ExtensionMessage.of("control.approve"))
    assert not is_waiting(Status(loop=both.model_copy(update={"calls_answered": {"c1": said}})))
