"""Short forms of loops' logs, and the worker's view of them. No server is needed."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus import ToolResultMessage, UserMessage
from lanebus.bus.messages import AgentEnded, AgentEvent, Block, ControlAnswered, Lane, StopReason, ToolWaiting, TurnId
from lanebus.handlers.agent import FOLLOW_UP
from lanebus.handlers.agent.turn.decision import (
    AddSystemPrompt,
    AdoptToolCalls,
    CallModel,
    CloseImportedCalls,
    CompactContext,
    Decision,
    FailToolCalls,
    HandleCommand,
    Idle,
    RunTools,
    StopAtLimit,
)
from lanebus.handlers.agent.turn.loop_state import SessionSnapshot
from lanebus.handlers.context import DEFERRED, READ_UP_TO, Context, evolve
from lanebus.handlers.projections import STATUS
from lanebus.messages import AgentStarted, AssistantMessage, TextBlock, ToolCallBlock, ToolStarted, TurnStarted, Usage
from tests.support.agent.folding import Said, fold, log_of

LOOP = "s1.main.1"


def turn(index: int, loop: str = LOOP) -> TurnId:
    return TurnId(loop_id=loop, turn_index=index)


def asks(text: str = "?") -> UserMessage:
    return UserMessage.text(text)


def follows_up(text: str = "then?") -> UserMessage:
    return UserMessage.text(text).model_copy(update={"metadata": {FOLLOW_UP: True}})


def started(loop: str = LOOP) -> AgentEvent:
    return AgentStarted(loop_id=loop, agent="a")


def begun(turn_id: TurnId) -> AgentEvent:
    return TurnStarted(turn_id=turn_id)


def ended(stop_reason: StopReason = "stop", loop: str = LOOP) -> AgentEvent:
    return AgentEnded(loop_id=loop, stop_reason=stop_reason, turns=1, usage=Usage())


def says(
    turn_id: TurnId | None,
    *content: Block | str,
    stop_reason: StopReason = "stop",
    seen: int | None = None,
    held: Sequence[int] = (),
    mark: str | None = None,
    usage: Usage | None = None,
) -> AssistantMessage:
    metadata: dict[str, JsonValue] = {} if seen is None else {READ_UP_TO: seen}
    if held:
        metadata[DEFERRED] = list(held)
    if mark is not None:
        metadata[mark] = True
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    return AssistantMessage(
        content=blocks, stop_reason=stop_reason, turn_id=turn_id, metadata=metadata or None, usage=usage
    )


def called(turn_id: TurnId, *ids: str, seen: int | None = None, usage: Usage | None = None) -> AssistantMessage:
    blocks = (ToolCallBlock(id=each, name="tool") for each in ids)
    return says(turn_id, *blocks, stop_reason="toolUse", seen=seen, usage=usage)


def result(turn_id: TurnId, call: str) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call, tool_name="tool", content=(TextBlock(text="ok"),), turn_id=turn_id)


def tool_started(turn_id: TurnId, call: str) -> AgentEvent:
    return ToolStarted(turn_id=turn_id, tool_call_id=call, tool_name="tool")


def waiting(turn_id: TurnId, call: str) -> AgentEvent:
    return ToolWaiting(turn_id=turn_id, tool_call_id=call, tool_name="tool")


def answered(control: int, outcome: str = "applied") -> AgentEvent:
    return ControlAnswered.model_validate({"control": control, "outcome": outcome})


def view_of(*messages: Said) -> SessionSnapshot:
    """Return a worker's view of a session with these entries at positions 1, 2, 3 …"""
    entries = log_of(*messages)
    context = Context("s1")
    for entry in entries:
        if entry.lane is Lane.LLM:
            context = evolve(context, entry)
    return SessionSnapshot(context, fold(STATUS, entries))


def in_words(step: Decision) -> str:
    match step:
        case Idle():
            return "rest"
        case HandleCommand(command=command):
            return f"obey {command.position}"
        case AddSystemPrompt(text=text):
            return f"instruct {text}"
        case AdoptToolCalls(answer=answer, start=start):
            return f"take up {_calls(answer.open_calls)} in {answer.turn_id} from {start.parent} {start.continuation}"
        case RunTools(answer=answer):
            return f"run {_calls(answer.open_calls)} of {answer.turn_id}"
        case FailToolCalls(answer=answer, text=text):
            return f"close {_calls(answer.open_calls)} of {answer.turn_id}: {text}"
        case CloseImportedCalls(answer=imported):
            return f"close imported {_calls(imported.open_calls)} of {imported.position}"
        case StopAtLimit(turn_id=turn_id, reached=reached, read_up_to=seen):
            return f"stop {turn_id} {reached.stop_reason} seen {seen}: {reached.text}"
        case CompactContext(turn_id=turn_id, is_open=is_open):
            return f"compact {'in' if is_open else 'before'} {turn_id}"
        case CallModel():
            return _speak(step)


def _speak(step: CallModel) -> str:
    words = f"speak {step.turn_id} {step.trigger} {[*step.results, *step.prompts]}"
    if step.deferred:
        words += f" holds {[*step.deferred]}"
    if step.start is not None:
        words += f" from {step.start.parent} {step.start.continuation}"
    return words


def _calls(calls: Sequence[ToolCallBlock]) -> str:
    return ",".join(call.id for call in calls)
