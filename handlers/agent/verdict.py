"""What is to be done with a tool call that has no result yet. Pure: whoever takes the session over decides the same."""

import logging
from collections.abc import Mapping
from typing import Literal, NamedTuple

from bus.messages.content import ToolCallBlock
from bus.messages.control import Deny, parse_control
from bus.messages.message import ToolResultMessage
from handlers.agent.standing import Answer
from handlers.agent.status import Command, LoopStatus, Status
from handlers.agent.tool import Tool, failed

__all__ = ("Ask", "Start", "Tell", "Verdict", "Wait", "judge", "judge_all", "unknown_outcome", "waits_for_person")

_log = logging.getLogger(__name__)


class Start(NamedTuple):
    """Run it."""

    tool: Tool
    attempt: int


class Tell(NamedTuple):
    """It is not run: this is its result."""

    result: ToolResultMessage


class Ask(NamedTuple):
    """Put it to a person."""

    why: Literal["approval", "unknown"]
    attempts: int
    """how often it was started"""


class Wait(NamedTuple):
    """The person has not answered."""


Verdict = Start | Tell | Ask | Wait


def judge_all(answer: Answer, tools: Mapping[str, Tool], status: Status) -> dict[str, tuple[ToolCallBlock, Verdict]]:
    """The open calls of an answer by their ids, in their order, each with what is to be done."""
    loop = status.loop
    known = loop if loop is not None and loop.turn == answer.turn_id else LoopStatus(loop_id="", started=0.0)
    judged: dict[str, tuple[ToolCallBlock, Verdict]] = {}
    for call in answer.open_calls:
        if call.id not in judged:  # a model that gives two calls one id gets one result
            judged[call.id] = call, judge(call, tools.get(call.name), known)
    return judged


def judge(call: ToolCallBlock, tool: Tool | None, loop: LoopStatus) -> Verdict:
    """What is to be done with one open call.

    A call without `ToolStarted` was surely not run. One with it that nobody is running any more was run or not, in part
    or whole: the tool says what that means.

    Args:
        loop: what is known of the call's turn.
    """
    if tool is None:
        return Tell(failed(call, f"Tool {call.name} not found"))
    attempts, started = loop.calls_attempts.get(call.id, 0), loop.calls_started.get(call.id, 0)
    asked, said = loop.calls_waiting.get(call.id), loop.calls_answered.get(call.id)
    if said is not None and said.position > started:  # an approval is good for one attempt
        denial = _denial(said)
        if denial is None:
            return Start(tool, attempts + 1)
        is_unknown = asked is not None and asked.why == "unknown"
        return Tell(unknown_outcome(call) if is_unknown else failed(call, denial))
    if asked is not None and said is None:
        return Wait()
    if started:
        if tool.idempotent:
            return Start(tool, attempts + 1)
        return Ask("unknown", attempts) if tool.on_unknown == "ask" else Tell(unknown_outcome(call))
    return Ask("approval", 0) if _wants_approval(tool, call) else Start(tool, 1)


def waits_for_person(answer: Answer, status: Status) -> bool:
    """Whether an answer has open calls, and a person was asked about each of them and has not answered."""
    loop = status.loop
    if loop is None or loop.turn != answer.turn_id:
        return False
    calls = answer.open_calls
    return bool(calls) and all(call.id in loop.calls_waiting and call.id not in loop.calls_answered for call in calls)


def unknown_outcome(call: ToolCallBlock) -> ToolResultMessage:
    """What the model is told of a call that was started and left no result."""
    return failed(
        call,
        f"Unknown outcome: {call.name} was started, but its worker was lost before a result came. It may have done all,"
        " part or nothing of its work, and was not run again. Find out what it did before you call it again.",
    )


def _denial(said: Command) -> str | None:
    """What the model is told of a denied call; None if it was approved."""
    control = parse_control(said.message)
    if not isinstance(control, Deny):
        return None
    return f"Denied by the user: {control.reason}" if control.reason else "Denied by the user"


def _wants_approval(tool: Tool, call: ToolCallBlock) -> bool:
    try:
        return tool.approval(call)
    except Exception:  # noqa: BLE001  # whoever cannot tell asks: running it unasked cannot be undone
        _log.warning("whether %s needs an approval cannot be told", call.name, exc_info=True)
        return True
