"""What an agent loop tells of itself: typed events that ride the extension lane as kind `agent.<event>`.

An event names messages, tool calls and results by id and position. It never repeats them, so a reader of the extension
lane alone sees no word of the LLM lane. Source: seed 001's `AgentEvent`, with the turn ids that it leaves out.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, ValidationError

from bus.errors import DecodeError, UnknownKind
from bus.messages.base import Wire
from bus.messages.context_entry import Position
from bus.messages.extension import ExtensionMessage
from bus.messages.message import StopReason
from bus.messages.node import NodeId, RevertCategory
from bus.messages.turn import TurnId
from bus.messages.usage import Usage

__all__ = (
    "AgentEnded",
    "AgentEvent",
    "AgentStarted",
    "CompactionEnded",
    "CompactionFailed",
    "CompactionStarted",
    "ControlAnswered",
    "InputRejected",
    "MessageEnded",
    "MessageStarted",
    "ParallelLoopsEnded",
    "ParallelLoopsStarted",
    "Progress",
    "PruneApplied",
    "RequestDefined",
    "RevertApplied",
    "SessionLinked",
    "ToolDefinition",
    "ToolEnded",
    "ToolStarted",
    "ToolUpdated",
    "ToolWaiting",
    "TurnEnded",
    "TurnStarted",
    "UsageSettled",
    "parse_event",
)

Positions = Annotated[tuple[Position, ...], Field(strict=False)]
Names = Annotated[tuple[str, ...], Field(strict=False)]


class AgentEvent(Wire):
    """The root of all events; `KIND` is what the extension message is called."""

    KIND: ClassVar[str]

    timestamp: int | None = None
    """milliseconds UTC, where it is told later than it happened; else the entry's own time counts"""

    def as_extension(self) -> ExtensionMessage:
        """This event as it is published."""
        return ExtensionMessage(kind=self.KIND, data=self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def read(cls, data: JsonValue) -> Self:
        """The event from an extension message's `data`.

        Raises:
            DecodeError: the data does not fit this event.
        """
        try:
            return cls.model_validate(data, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise DecodeError(".".join(("data", *map(str, first["loc"]))), first["msg"]) from None


class AgentStarted(AgentEvent):
    """A loop began."""

    KIND = "agent.started"
    loop_id: str
    agent: str
    parent_loop_id: str | None = None
    continuation: Literal["initial", "default", "rerun", "branch", "compaction"] = "initial"
    continuation_tag: str | None = None
    """which rerun or branch it is"""
    config: JsonValue = None
    metadata: JsonValue = None
    """what the caller gave the loop to carry"""


class AgentEnded(AgentEvent):
    """A loop ended; `usage` repeats the sum over its turns."""

    KIND = "agent.ended"
    loop_id: str
    stop_reason: StopReason
    turns: int
    usage: Usage
    rejection: str | None = None


class TurnStarted(AgentEvent):
    KIND = "agent.turn.started"
    turn_id: TurnId
    trigger: Literal["user", "subAgent", "continuation", "branch"] = "user"
    prompts: Positions = ()
    """the entries that this turn answers"""
    request: str | None = None
    """hash of the `RequestDefined` that tells what the model is offered beside the context; None if that is not told"""


class TurnEnded(AgentEvent):
    KIND = "agent.turn.ended"
    turn_id: TurnId
    stop_reason: StopReason
    usage: Usage
    message: Position | None = None
    """the assistant's message"""
    tool_results: Positions = ()


class UsageSettled(AgentEvent):
    """What a model call really took, learnt after its message was recorded with an estimate; it takes the place of that
    estimate, once."""

    KIND = "agent.usage.settled"
    turn_id: TurnId
    message: Position
    """the assistant's message"""
    usage: Usage


class ToolDefinition(Wire):
    """A tool as a model is told of it."""

    name: str
    description: str
    input_schema: dict[str, JsonValue]
    """JSON schema of its arguments"""


class RequestDefined(AgentEvent):
    """What all requests from here on have beside the context: told once, and again when it has changed. These are the
    agent's words, and none of the conversation's."""

    KIND = "agent.request.defined"
    hash: str
    """of all that follows: `TurnStarted` names it"""
    provider: str
    model: str
    """who is asked"""
    api: str | None = None
    """the form of the requests, such as "openai-chat"; None if the model does not tell"""
    tools: Annotated[tuple[ToolDefinition, ...], Field(strict=False)] = ()
    """in the order of the request"""
    max_tokens: int
    """most tokens of an answer"""
    options: dict[str, JsonValue] | None = None
    """how else the model forms its requests, as far as it tells"""


class MessageStarted(AgentEvent):
    """The model began to speak; what follows under this id are live deltas."""

    KIND = "agent.message.started"
    turn_id: TurnId
    message_id: str
    shown: Position | None = None
    """up to where the model is shown the session; None is all that stands before this event"""
    held: Annotated[tuple[Position, ...] | None, Field(strict=False)] = None
    """positions up to there of what it is not shown yet"""


class MessageEnded(AgentEvent):
    KIND = "agent.message.ended"
    turn_id: TurnId
    message_id: str | None = None
    position: Position


class ToolStarted(AgentEvent):
    """A call is about to be run. One without this was surely not run."""

    KIND = "agent.tool.started"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    attempt: int | None = None
    """from 2 on, if it was started before and nobody knows what came of it"""


class ToolWaiting(AgentEvent):
    """A call waits for a person, who answers with `Approve` or `Deny`."""

    KIND = "agent.tool.waiting"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    why: Literal["approval", "unknown"] = "approval"
    """approval: the tool asks before it runs. unknown: it was started, and nobody knows what came of it"""


class ToolUpdated(AgentEvent):
    """A tool's result so far changed; what it is stands in the live deltas, not here."""

    KIND = "agent.tool.updated"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str


class ToolEnded(AgentEvent):
    KIND = "agent.tool.ended"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    is_error: bool
    position: Position | None = None
    """the result's entry"""
    child_loop_id: str | None = None


class Progress(AgentEvent):
    """What a tool says to the user while it works; it is for people and no part of its result."""

    KIND = "agent.progress"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    text: str


class InputRejected(AgentEvent):
    KIND = "agent.input.rejected"
    loop_id: str
    reason: str


class ParallelLoopsStarted(AgentEvent):
    KIND = "agent.parallel.started"
    loop_ids: Names


class ParallelLoopsEnded(AgentEvent):
    KIND = "agent.parallel.ended"
    selected_loop_id: str
    selected_config_index: int
    evaluation_usage: Usage


class CompactionStarted(AgentEvent):
    KIND = "agent.compaction.started"
    loop_id: str
    estimated_tokens: int
    message_count: int


class CompactionEnded(AgentEvent):
    KIND = "agent.compaction.ended"
    loop_id: str
    messages_before: int
    messages_after: int
    estimated_tokens_before: int
    estimated_tokens_after: int
    loops_compacted: int | None = None
    position: Position | None = None
    """the `Compaction` entry"""


class CompactionFailed(AgentEvent):
    """No summary came of a model call. What the call took counts for the session all the same."""

    KIND = "agent.compaction.failed"
    loop_id: str
    reason: str
    is_interrupted: bool = False
    """it was cut short by a command or by the end of its worker, and says nothing of the next try"""
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None


class PruneApplied(AgentEvent):
    KIND = "agent.prune.applied"
    loop_id: str
    tokens_removed: int
    pruned: Positions
    messages_removed: int | None = None
    """how many, where `pruned` does not name them all"""
    pruned_timestamps: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    """of the messages, in milliseconds, as seed 001 names them; several may have the same"""
    memo: str | None = None


class RevertApplied(AgentEvent):
    KIND = "agent.revert.applied"
    loop_id: str
    category: RevertCategory
    target: Position | None = None
    target_node: NodeId | None = None
    """the same in the author's own numbers"""
    abandoned_nodes: Annotated[tuple[NodeId, ...], Field(strict=False)] = ()
    summary: Position | None = None
    """the entry that says what was learnt on the way"""
    applied: bool
    reason: str | None = None


class ControlAnswered(AgentEvent):
    """What became of a command."""

    KIND = "agent.control.answered"
    control: Position
    """of the command"""
    outcome: Literal["applied", "late", "repeated", "refused"]
    """late: what it was about is over. repeated: it is so already. refused: it cannot be read"""
    reason: str | None = None


class SessionLinked(AgentEvent):
    """A session was begun for a tool call of another one. Both logs hold it."""

    KIND = "agent.session.linked"
    parent: str
    child: str
    turn_id: TurnId
    """of the parent's turn"""
    tool_call_id: str
    agent: str
    """the name of the agent that works the child"""
    depth: int = 1
    """how many sessions stand above the child"""


_EVENTS: dict[str, type[AgentEvent]] = {
    event.KIND: event
    for event in (
        AgentStarted,
        AgentEnded,
        TurnStarted,
        TurnEnded,
        UsageSettled,
        MessageStarted,
        MessageEnded,
        ToolStarted,
        ToolUpdated,
        ToolEnded,
        Progress,
        InputRejected,
        ParallelLoopsStarted,
        ParallelLoopsEnded,
        CompactionStarted,
        CompactionEnded,
        CompactionFailed,
        PruneApplied,
        RevertApplied,
        ToolWaiting,
        ControlAnswered,
        SessionLinked,
        RequestDefined,
    )
}


def parse_event(message: ExtensionMessage) -> AgentEvent | None:
    """The agent event that an extension message carries; None where its kind is not an agent's.

    Raises:
        UnknownKind: a kind `agent.…` that does not exist.
        DecodeError: the data does not fit the event.
    """
    if not message.kind.startswith("agent."):
        return None
    event = _EVENTS.get(message.kind)
    if event is None:
        raise UnknownKind(message.kind)
    return event.read(message.data)
