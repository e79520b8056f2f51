"""A tool call: what to do with a call that has no result yet, and how a tool's reply becomes its result. Pure."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, cast, get_args

from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from lanebus.bus.errors import InvalidArgument, InvalidContent, require_instance
from lanebus.bus.messages import (
    Approve,
    Block,
    Deny,
    Frozen,
    TextBlock,
    ToolCallBlock,
    ToolOutcome,
    ToolResultMessage,
    TurnId,
    now_ms,
)
from lanebus.bus.text import logged, whole_json
from lanebus.handlers.agent.turn.decision import ABORTED, SKIPPED
from lanebus.handlers.agent.turn.loop_state import CHILD_LOOP, HANDOFF, OUTCOME, OpenAnswer
from lanebus.handlers.projections import Command, LoopStatus, Status

# What to do with a tool call that has no result yet. Pure: every worker decides the same.

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
    lapsed: int = 0
    """position of the answer to the question before, if a handover made it void"""

    @property
    def key(self) -> str:
        """A name of the question, which no other question about the call has."""
        return f"ask.{self.attempts}.after-{self.lapsed}" if self.lapsed else f"ask.{self.attempts}"


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
            decided[call.id] = call, decide_open_call(call, tools.get(call.name), current)
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


def decide_open_call(call: ToolCallBlock, tool: ToolRules | None, loop: LoopStatus) -> ToolDecision:
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
        lapsed = loop.calls_lapsed.get(call.id)
        return AwaitPerson() if lapsed is None else AskPerson(question.why, attempts, lapsed.position)
    if started:
        is_foreign = started < loop.assigned  # of the agent before: no person has let this one repeat it
        if tool.idempotent and not (is_foreign and _wants_approval(tool, call)):
            return StartCall(attempts + 1)
        is_asked = tool.idempotent or tool.on_unknown == "ask"
        return AskPerson("unknown", attempts) if is_asked else AnswerCall(unknown(call, _LOST))
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


# The return values of tools, and their conversion to result messages.


@dataclass(frozen=True, slots=True)
class ToolReply:
    """A tool result that can also be an error, end the loop, or hand the session to a person."""

    content: str | Sequence[Block | str] = ""
    """the result for the model"""
    structured: JsonValue = None
    """the result as JSON, for programs"""
    is_error: bool = False
    """whether the call failed"""
    terminate: bool = False
    """whether to end the loop without another model call. The loop ends only if all results of the turn have
    `terminate` set"""
    terminate_message: str | None = None
    """text for this result in the final message of a loop that `terminate` ends; None uses the content"""
    handoff: str | None = None
    """reason for which the session is handed to a person at the end of the turn; None means no handoff"""
    child_loop_id: str | None = None
    """id of the sub-agent's loop that produced the result, if there is one"""


_ANY = TypeAdapter(object)
_RESULT = "return a text, blocks, a ToolReply, or a value that JSON can hold, with finite numbers"


def failed(call: ToolCallBlock, text: str, outcome: ToolOutcome = "failed") -> ToolResultMessage:
    """Return an error result. The model reads `text`; `outcome` is recorded in the call's `ToolEnded`."""
    result = ToolResultMessage.of(call, text, is_error=True)
    return result if outcome == "failed" else result.model_copy(update={"metadata": {OUTCOME: outcome}})


def unknown(call: ToolCallBlock, cause: str) -> ToolResultMessage:
    """Return the result of a call that was started and whose end is not known.

    Args:
        cause: what ended the wait for the result, such as "its worker was lost before a result came".
    """
    text = (
        f"Unknown outcome: {call.name} was started, but {cause}. It may have done all, part or nothing of its work, and"
        " was not run again. Find out what it did before you call it again."
    )
    return failed(call, text, "unknown")


def split_outcome(result: ToolResultMessage) -> tuple[ToolResultMessage, ToolOutcome]:
    """Return a copy of the result without `OUTCOME` in the copy's metadata, and the outcome of the call."""
    metadata = dict(result.metadata or {})
    given = metadata.pop(OUTCOME, None)
    outcome = next((each for each in get_args(ToolOutcome) if each == given), None)
    if outcome is None:
        outcome = "failed" if result.is_error else "completed"
    stripped = result if given is None else result.model_copy(update={"metadata": metadata or None})
    return stripped, cast("ToolOutcome", outcome)


def result_of(call: ToolCallBlock, output: object) -> ToolResultMessage:
    """Convert what a tool's function returned to a result message.

    Raises:
        InvalidArgument: the value cannot be written as JSON, for example because it is NaN.
    """
    try:
        return _result_of(call, output if isinstance(output, ToolReply) else _reply(output))
    except InvalidArgument:
        raise
    except (InvalidContent, ValueError, RecursionError) as error:  # a value that is nested too deep, or in itself
        raise InvalidArgument("result", output, f"{_RESULT} ({error})") from None


def _result_of(call: ToolCallBlock, reply: ToolReply) -> ToolResultMessage:
    require_instance("content", reply.content, (str, Sequence), "pass a text, or a list of blocks and texts")
    parts = (reply.content,) if isinstance(reply.content, str) else reply.content
    content = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in parts if part != "")
    metadata: dict[str, JsonValue] = {}
    if reply.handoff is not None:
        metadata[HANDOFF] = reply.handoff
    if reply.child_loop_id is not None:
        metadata[CHILD_LOOP] = reply.child_loop_id
    return ToolResultMessage(
        tool_call_id=call.id,
        tool_name=call.name,
        content=content,
        structured=reply.structured,
        is_error=reply.is_error,
        terminate=reply.terminate or None,
        terminate_message=reply.terminate_message,
        metadata=metadata or None,
        timestamp=now_ms(),
    )


def _reply(output: object) -> ToolReply:
    given = output  # not narrowed by the checks below
    if output is None:
        return ToolReply()
    if isinstance(output, str):
        return ToolReply(output)
    if _is_block(output):
        return ToolReply((cast("Block", output),))
    if isinstance(output, list | tuple) and output:
        items = cast("Sequence[object]", output)
        if any(_is_block(item) for item in items) and all(_is_block(item) or isinstance(item, str) for item in items):
            return ToolReply(cast("Sequence[Block | str]", items))
    structured = _jsonable(given)
    return ToolReply(json.dumps(structured, ensure_ascii=False), structured=structured)


def _jsonable(output: object) -> JsonValue:
    try:
        return cast("JsonValue", to_jsonable_python(output))
    except UnicodeEncodeError:  # of a key: pydantic writes other text as it is
        plain: object = _ANY.dump_python(output)
        return cast("JsonValue", to_jsonable_python(whole_json(plain)))


def _is_block(value: object) -> bool:
    return isinstance(value, Frozen) and hasattr(value, "type")
