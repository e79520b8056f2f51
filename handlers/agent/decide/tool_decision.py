"""What is done with a tool call that has no result yet. Pure, and the same for every worker."""

import logging
from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.control import Deny
from lanebus.bus.messages.message import ToolResultMessage
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
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
    """What a tool says of its calls; see `Tool`."""

    @property
    def idempotent(self) -> bool: ...
    @property
    def on_unknown(self) -> Literal["tell", "ask"]: ...
    def approval(self, call: ToolCallBlock, /) -> bool: ...


class StartCall(NamedTuple):
    """Run it."""

    attempt: int


class AnswerCall(NamedTuple):
    """Do not run it: this is its result."""

    result: ToolResultMessage


class AskPerson(NamedTuple):
    """Ask a person whether it may run."""

    why: Literal["approval", "unknown"]
    attempts: int
    """how often it was started"""


class AwaitPerson(NamedTuple):
    """The person has not answered."""


ToolDecision = StartCall | AnswerCall | AskPerson | AwaitPerson


def decide_calls(
    answer: OpenAnswer, tools: Mapping[str, ToolRules], status: Status
) -> dict[str, tuple[ToolCallBlock, ToolDecision]]:
    """Return the open calls of an answer by their ids, in their order, each with its decision."""
    loop = status.loop
    known = loop if loop is not None and loop.turn == answer.turn_id else LoopStatus(loop_id="", started=0.0)
    decided: dict[str, tuple[ToolCallBlock, ToolDecision]] = {}
    for call in answer.open_calls:
        if call.id not in decided:  # a model that gives two calls one id gets one result
            decided[call.id] = call, decide_call(call, tools.get(call.name), known)
    return decided


def decide_call(call: ToolCallBlock, tool: ToolRules | None, loop: LoopStatus) -> ToolDecision:
    """Return what is done with one open call.

    A call without `ToolStarted` has not run. A call with it that no worker is running may have run, in part or whole:
    the tool says what follows from that.

    Args:
        tool: None if the agent has none of this name.
        loop: what is known of the call's turn.
    """
    if tool is None:
        return _error(call, f"Tool {call.name} not found")
    attempts, started = loop.calls_attempts.get(call.id, 0), loop.calls_started.get(call.id, 0)
    asked, said = loop.calls_waiting.get(call.id), loop.calls_answered.get(call.id)
    if said is not None and said.position > started:  # an approval is good for one attempt
        if not isinstance(said.control, Deny):
            return StartCall(attempts + 1)
        # The model is not told the reason: that is part of the extension lane.
        return _unknown(call) if asked is not None and asked.why == "unknown" else _error(call, DENIED)
    if asked is not None and said is None:
        return AwaitPerson()
    if started:
        if tool.idempotent:
            return StartCall(attempts + 1)
        return AskPerson("unknown", attempts) if tool.on_unknown == "ask" else _unknown(call)
    return AskPerson("approval", 0) if _wants_approval(tool, call) else StartCall(1)


def _unknown(call: ToolCallBlock) -> AnswerCall:
    """The result of a call that was started and left none."""
    return _error(
        call,
        f"Unknown outcome: {call.name} was started, but its worker was lost before a result came. It may have done all,"
        " part or nothing of its work, and was not run again. Find out what it did before you call it again.",
    )


def _error(call: ToolCallBlock, text: str) -> AnswerCall:
    return AnswerCall(ToolResultMessage.of(call, text, is_error=True))


def _wants_approval(tool: ToolRules, call: ToolCallBlock) -> bool:
    try:
        return tool.approval(call)
    except Exception:  # noqa: BLE001  # if the tool cannot say, ask: a run without approval cannot be undone
        _log.warning("whether %s needs an approval cannot be told", call.name, exc_info=True)
        return True
