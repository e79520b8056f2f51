"""What to do with a tool call that has no result yet. Pure: every worker decides the same."""

import logging
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from lanebus.bus.error_text import logged
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.control import Approve, Deny
from lanebus.bus.messages.events import ToolOutcome
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.decide.decision import ABORTED, SKIPPED
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.tools.tool_reply import failed, unknown
from lanebus.handlers.projections.agent_status import Command, LoopStatus, Status

__all__ = (
    "CHANGED",
    "LOOP_ENDED",
    "AnswerCall",
    "AskPerson",
    "AwaitPerson",
    "CallStart",
    "StartCall",
    "ToolDecision",
    "ToolRules",
    "approves",
    "closing_result",
    "decide_call",
    "decide_calls",
    "has_started",
    "turn_status",
)

DENIED = "Denied by the user"
CHANGED = "Not run: the user approved this call with other arguments. Call the tool again"
LOOP_ENDED = "the loop ended before a result came"

_LOST = "its worker was lost before a result came"
_CLOSINGS: Mapping[str, tuple[ToolOutcome, str]] = {
    ABORTED: ("aborted", "it was aborted before a result came"),
    SKIPPED: ("skipped", "a new user message stopped it before a result came"),
}
"""text for a call that was not started → its outcome, and the cause of the unknown outcome of a call that ran"""

CallStart = Literal["none", "stopped", "lost"]
"""Whether an open call was started. `stopped`: by this run, which has stopped it. `lost`: by an earlier run, whose
worker was lost."""

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
    current = turn_status(status, answer.turn_id)
    decided: dict[str, tuple[ToolCallBlock, ToolDecision]] = {}
    for call in answer.open_calls:
        if call.id not in decided:  # calls with the same id share one result
            decided[call.id] = call, decide_call(call, tools.get(call.name), current)
    return decided


def turn_status(status: Status, turn_id: TurnId) -> LoopStatus:
    """Return the status of the loop if `turn_id` is the loop's newest turn; otherwise a status without calls."""
    loop = status.loop
    return loop if loop is not None and loop.turn == turn_id else LoopStatus(loop_id="", started=0.0)


def has_started(call_id: str, loop: LoopStatus) -> bool:
    """Whether the log has the start of an open call, so the call may have run.

    A start that ended in the question whether the call may run does not count: frameworks ask from within a tool.

    Args:
        loop: the status of the call's turn.
    """
    started = loop.calls_started.get(call_id, 0)
    question, reply = loop.calls_waiting.get(call_id), loop.calls_answered.get(call_id)
    is_asked = question is not None and question.why == "approval" and (reply is None or reply.position > started)
    return started > 0 and not is_asked


def closing_result(
    call: ToolCallBlock, text: str, *, start: CallStart, outcome: ToolOutcome | None = None, cause: str | None = None
) -> ToolResultMessage:
    """Return the result of an open call that a command, a limit or an error ends.

    Args:
        text: what the model reads if the call was not started.
        start: whether the call was started. Its outcome is then unknown, whatever `outcome` says.
        outcome: how a call that was not started ended; None derives it from the text.
        cause: what stopped a call; None derives it from the text.
    """
    ended, known = _CLOSINGS.get(text, ("failed", LOOP_ENDED))
    if start == "none":
        return failed(call, text, outcome or ended)
    return unknown(call, _LOST if start == "lost" else cause or known)


def decide_call(call: ToolCallBlock, tool: ToolRules | None, loop: LoopStatus) -> ToolDecision:
    """Return what to do with one open call that no worker is running.

    A call without a `ToolStarted` event has not run. A call with this event may have run, partly or completely. Such a
    call runs again if the tool is idempotent; else the tool's `on_unknown` decides.

    Args:
        tool: None if the agent has no tool of this name.
        loop: the status of the call's turn.
    """
    if tool is None:
        if has_started(call.id, loop):
            return AnswerCall(unknown(call, f"{_LOST}, and the agent has no tool of this name any more"))
        return AnswerCall(failed(call, f"Tool {call.name} not found"))
    attempts, started = loop.calls_attempts.get(call.id, 0), loop.calls_started.get(call.id, 0)
    question, reply = loop.calls_waiting.get(call.id), loop.calls_answered.get(call.id)
    if reply is not None and reply.position > started:  # an approval covers one attempt
        if approves(reply, call):
            return StartCall(attempts + 1)
        if question is not None and question.why == "unknown":
            return AnswerCall(unknown(call, _LOST))
        # The reason stays in the extension lane, which no model reads.
        return AnswerCall(failed(call, DENIED if isinstance(reply.control, Deny) else CHANGED, "denied"))
    if question is not None and reply is None:
        return AwaitPerson()
    if started:
        if tool.idempotent:
            return StartCall(attempts + 1)
        return AskPerson("unknown", attempts) if tool.on_unknown == "ask" else AnswerCall(unknown(call, _LOST))
    return AskPerson("approval", 0) if _wants_approval(tool, call) else StartCall(1)


def approves(reply: Command, call: ToolCallBlock) -> bool:
    """Whether a command lets a call run, with the arguments that the call has now."""
    control = reply.control
    return isinstance(control, Approve) and control.call_hash in {None, call.call_hash}


def _wants_approval(tool: ToolRules, call: ToolCallBlock) -> bool:
    try:
        return tool.approval(call)
    except Exception as error:  # noqa: BLE001  # ask a person: an unapproved run cannot be undone
        what = "the approval function of tool %s failed, so a person is asked"
        _log.warning(what, call.name, exc_info=logged(error))
        return True
