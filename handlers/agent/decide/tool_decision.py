"""What to do with a tool call that has no result yet. Pure: every worker decides the same."""

import logging
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from lanebus.bus.error_text import logged
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.control import Deny
from lanebus.bus.messages.events import ToolOutcome
from lanebus.bus.messages.message import ToolResultMessage
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.metadata_keys import OUTCOME
from lanebus.handlers.projections.agent_status import LoopStatus, Status

__all__ = (
    "AnswerCall",
    "AskPerson",
    "AwaitPerson",
    "StartCall",
    "ToolDecision",
    "ToolRules",
    "decide_call",
    "decide_calls",
)

DENIED = "Denied by the user"

_log = logging.getLogger(__name__)


class ToolRules(Protocol):
    """The parts of a `Tool` that decisions depend on."""

    @property
    def idempotent(self) -> bool: ...
    @property
    def on_unknown(self) -> Literal["tell", "ask"]: ...
    def approval(self, call: ToolCallBlock, /) -> bool: ...


class StartCall(NamedTuple):
    """Run the call."""

    attempt: int


class AnswerCall(NamedTuple):
    """Record this result without running the call."""

    result: ToolResultMessage


class AskPerson(NamedTuple):
    """Ask a person whether the call may run."""

    why: Literal["approval", "unknown"]
    attempts: int
    """how often the call was started"""


class AwaitPerson(NamedTuple):
    """Wait for the person, who was asked and has not answered."""


ToolDecision = StartCall | AnswerCall | AskPerson | AwaitPerson


def decide_calls(
    answer: OpenAnswer, tools: Mapping[str, ToolRules], status: Status
) -> dict[str, tuple[ToolCallBlock, ToolDecision]]:
    """Return the decision for each open call of an answer, by call id and in the order of the calls."""
    loop = status.loop
    current = loop if loop is not None and loop.turn == answer.turn_id else LoopStatus(loop_id="", started=0.0)
    decided: dict[str, tuple[ToolCallBlock, ToolDecision]] = {}
    for call in answer.open_calls:
        if call.id not in decided:  # calls with the same id share one result
            decided[call.id] = call, decide_call(call, tools.get(call.name), current)
    return decided


def decide_call(call: ToolCallBlock, tool: ToolRules | None, loop: LoopStatus) -> ToolDecision:
    """Return what to do with one open call that no worker is running.

    A call without a `ToolStarted` event has not run. A call with this event may have run, partly or completely. Such a
    call runs again if the tool is idempotent; else the tool's `on_unknown` decides.

    Args:
        tool: None if the agent has no tool of this name.
        loop: the status of the call's turn.
    """
    if tool is None:
        return _error(call, f"Tool {call.name} not found")
    attempts, started = loop.calls_attempts.get(call.id, 0), loop.calls_started.get(call.id, 0)
    question, reply = loop.calls_waiting.get(call.id), loop.calls_answered.get(call.id)
    if reply is not None and reply.position > started:  # an approval covers one attempt
        if not isinstance(reply.control, Deny):
            return StartCall(attempts + 1)
        # The reason stays in the extension lane, which no model reads.
        return _unknown(call) if question is not None and question.why == "unknown" else _error(call, DENIED, "denied")
    if question is not None and reply is None:
        return AwaitPerson()
    if started:
        if tool.idempotent:
            return StartCall(attempts + 1)
        return AskPerson("unknown", attempts) if tool.on_unknown == "ask" else _unknown(call)
    return AskPerson("approval", 0) if _wants_approval(tool, call) else StartCall(1)


def _unknown(call: ToolCallBlock) -> AnswerCall:
    """Return an error result for a call that was started and left no result."""
    return _error(
        call,
        f"Unknown outcome: {call.name} was started, but its worker was lost before a result came. It may have done all,"
        " part or nothing of its work, and was not run again. Find out what it did before you call it again.",
        "unknown",
    )


def _error(call: ToolCallBlock, text: str, outcome: ToolOutcome = "failed") -> AnswerCall:
    result = ToolResultMessage.of(call, text, is_error=True)
    return AnswerCall(result.model_copy(update={"metadata": {OUTCOME: outcome}}))


def _wants_approval(tool: ToolRules, call: ToolCallBlock) -> bool:
    try:
        return tool.approval(call)
    except Exception as error:  # noqa: BLE001  # ask a person: an unapproved run cannot be undone
        what = "the approval function of tool %s failed, so a person is asked"
        _log.warning(what, call.name, exc_info=logged(error))
        return True
