"""The extension lane: messages for UIs and handlers, events of agent loops, and commands to a running agent.

An event refers to messages, tool calls and results by id and position. It never repeats their content, so a reader of
the extension lane alone sees no content of the LLM lane. Publish an event with `as_extension()`, and read an event with
`parse_event`.

Source: the `two-lane-agent` system's `AgentEvent`, with turn ids added.

The session's worker handles each command once, in log order. It answers a command with a `ControlAnswered` event.
The event is in the same publish as the effect of the command. Until then the command changes nothing.

A command contains no text for a model. A user's text is in the LLM lane, and a `Steer` refers to it by position.
"""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import PydanticCustomError

from lanebus.bus.errors import DecodeError, UnknownKind, require_instance, require_text
from lanebus.bus.messages.base import Lane, Usage, Wire, json_reason
from lanebus.bus.messages.message import NodeId, Position, RevertCategory, StopReason, TurnId

EXTENSION_ADVICE = "pass an ExtensionMessage; read with lanes={Lane.EXTENSION} to get no others"

CONTROL = "control."
"""the prefix of the kinds of all commands to an agent"""

STORE = "store."
"""the prefix of the kinds of what a framework stores in a session, which may hold content of the LLM lane"""


class ExtensionMessage(Wire):
    """A notification, a progress report, an agent event or a command: `{"role":"extension","kind":…,"data":…}`.

    A model never sees an extension message: no constructor or codec converts it to a message of the LLM lane.
    """

    lane: ClassVar[Lane] = Lane.EXTENSION

    role: Literal["extension"] = "extension"
    kind: str
    data: JsonValue

    @property
    def is_control(self) -> bool:
        """Whether the message is a command to a running loop, of a kind `control.…`. A full session still accepts
        commands."""
        return self.kind.startswith(CONTROL)

    @property
    def is_stored_state(self) -> bool:
        """Whether the message is what a framework stores in the session, of a kind `store.…`. Views for people leave it
        out."""
        return self.kind.startswith(STORE)

    @classmethod
    def of(cls, kind: str, data: JsonValue = None) -> Self:
        """Return a message of any kind.

        lanebus gives a meaning to kinds with these prefixes:

        - `agent.…`: an agent event. Use its class instead, as in `Progress(…).as_extension()`. Readers skip an
          unreadable event.
        - `control.…`: a command to the session's worker. Use its class instead, as in `Abort().as_extension()`.
        - `store.…`: what a framework stores in the session. It may hold content of the LLM lane, so it is read only
          with both lanes.
        - `session.…`: a note of the bus, such as `session.closed`. Publishing this note does not close the session.

        Args:
            kind: the kind, such as "progress"; not empty.
            data: any JSON.

        Raises:
            InvalidArgument: `kind` is no text or empty.
            InvalidContent: a part of `data` is not JSON; the error names it.
        """
        require_text("kind", kind, is_filled=True)
        return cls(kind=kind, data=data)

    def as_llm(self) -> None:
        """Return None, because the message is not for a model."""
        return

    @property
    def turn_id(self) -> None:
        """Always None, because an agent event names its turn in `data`."""
        return

    @property
    def timestamp(self) -> None:
        """Always None, because the envelope has the time."""
        return

    def with_turn_id(self, turn_id: object) -> Self:
        """Return this message unchanged."""
        del turn_id
        return self

    @model_serializer(mode="wrap")
    def _keep_null_data(self, default: SerializerFunctionWrapHandler) -> JsonValue:
        # `data` is required in the JSON, but `exclude_none` would leave out a null.
        plain: JsonValue = default(self)
        if self.data is None and isinstance(plain, dict):
            plain["data"] = None
        return plain


class ExtensionData(Wire):
    """The typed data of an extension message: the base class of commands and agent events."""

    KIND: ClassVar[str]
    """the kind of the extension message that `as_extension` returns"""

    def as_extension(self) -> ExtensionMessage:
        """Return the extension message to publish."""
        return ExtensionMessage(kind=self.KIND, data=self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @classmethod
    def read(cls, data: JsonValue) -> Self:
        """Return an object of this class, made from the `data` of an extension message.

        Raises:
            DecodeError: the data does not fit this class. The error names the path of the fault.
        """
        try:
            return cls.model_validate(data, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise DecodeError(".".join(("data", *map(str, first["loc"]))), json_reason(first)) from None


# Events of an agent loop: typed messages in the extension lane, of kind `agent.<event>`.


Positions = Annotated[tuple[Position, ...], Field(strict=False)]
"""Positions of entries, in JSON a list."""


class AgentEvent(ExtensionData):
    """The base class of all agent events. `KIND` is the kind of the extension message that contains the event."""

    timestamp: int | None = None
    """time of the event in milliseconds UTC, if the event is published later than it happened. None means the time of
    the entry"""


# Events of a loop, from its first turn to its last.


class AgentStarted(AgentEvent):
    """A loop began."""

    KIND = "agent.started"
    loop_id: str
    agent: str
    parent_loop_id: str | None = None
    continuation: Literal["initial", "default", "rerun", "branch", "compaction"] = "initial"
    continuation_tag: str | None = None
    """name of the rerun or branch; None if `continuation` names neither"""
    config: JsonValue = None
    metadata: JsonValue = None
    """data of the program that published the event"""


class AgentEnded(AgentEvent):
    """A loop ended. `usage` is the sum over its turns."""

    KIND = "agent.ended"
    loop_id: str
    stop_reason: StopReason
    turns: int
    usage: Usage
    rejection: str | None = None


class InputRejected(AgentEvent):
    """A guard rejected the loop's input."""

    KIND = "agent.input.rejected"
    loop_id: str
    reason: str


class ParallelLoopsStarted(AgentEvent):
    """Several loops started on the same input. One of them will be selected."""

    KIND = "agent.parallel.started"
    loop_ids: Annotated[tuple[str, ...], Field(strict=False)]


class ParallelLoopsEnded(AgentEvent):
    """One of several parallel loops was selected."""

    KIND = "agent.parallel.ended"
    selected_loop_id: str
    selected_config_index: int
    evaluation_usage: Usage


# Events of a turn: its request, its message and its usage.


class TurnStarted(AgentEvent):
    """A turn started: one model call with its tools."""

    KIND = "agent.turn.started"
    turn_id: TurnId
    trigger: Literal["user", "subAgent", "continuation", "branch"] = "user"
    prompts: Positions = ()
    """positions of what this turn answers: new messages of users, or results of the previous turn's tools"""
    request: str | None = None
    """`hash` of the `RequestDefined` event that describes the turn's request; None if no such event is recorded"""


class TurnEnded(AgentEvent):
    """A turn ended. `usage` is the usage of the turn's model call."""

    KIND = "agent.turn.ended"
    turn_id: TurnId
    stop_reason: StopReason
    usage: Usage
    message: Position | None = None
    """position of the assistant's message"""
    tool_results: Positions = ()


class UsageSettled(AgentEvent):
    """The final usage of a model call whose message was recorded with an estimate.

    Readers count the final usage instead of the estimate, and ignore repeated events.
    """

    KIND = "agent.usage.settled"
    turn_id: TurnId
    message: Position
    """position of the assistant's message"""
    usage: Usage


class ToolDefinition(Wire):
    """The description of a tool that a model gets."""

    name: str
    description: str
    input_schema: dict[str, JsonValue]
    """JSON schema of the arguments"""


class RequestDefined(AgentEvent):
    """Describes what the next requests contain besides the context. Published once, and again after each change.

    The event describes the agent and contains no text of the conversation.
    """

    KIND = "agent.request.defined"
    hash: str
    """hash of all other fields; `TurnStarted.request` refers to it"""
    provider: str
    model: str
    """the model that is called"""
    api: str | None = None
    """the form of the requests, such as "openai-chat"; None if the model does not report it"""
    tools: Annotated[tuple[ToolDefinition, ...], Field(strict=False)] = ()
    """the tools, in the order of the request"""
    max_tokens: int
    """maximum number of tokens of an answer"""
    options: dict[str, JsonValue] | None = None
    """other options of the requests, if the model reports them"""


class MessageStarted(AgentEvent):
    """The model started its answer. Live deltas with this message id follow."""

    KIND = "agent.message.started"
    turn_id: TurnId
    message_id: str
    shown: Position | None = None
    """the last position that the request includes; None means that it includes all entries before this event. A message
    that arrives while the model answers is after `shown`, and before the answer in the log."""
    held: Annotated[tuple[Position, ...] | None, Field(strict=False)] = None
    """positions up to `shown` whose entries the request does not include yet"""


class MessageEnded(AgentEvent):
    """The model's answer ended and is in the log, even if the answer failed or was aborted."""

    KIND = "agent.message.ended"
    turn_id: TurnId
    message_id: str | None = None
    position: Position


# Events of a tool call.

ToolOutcome = Literal["completed", "failed", "denied", "skipped", "aborted", "timedOut", "unknown"]
"""How a tool call ended.

- "completed": the tool returned a result
- "failed": the tool returned an error or could not be run
- "denied": a person denied the call
- "skipped": the user sent another message, or the loop ended, before the call was started
- "aborted": a command ended the call before it was started
- "timedOut": the call exceeded a time limit; only in logs of earlier versions
- "unknown": the call was started, and a command, a time limit, the end of the loop, a lost worker or a lost connection
  ended the wait for its result. It may have done all, part or nothing of its work
"""


class ToolStarted(AgentEvent):
    """A tool call is about to run. A call without this event certainly did not run."""

    KIND = "agent.tool.started"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    attempt: int | None = None
    """how often the call was started, including this start. It is 2 or more if the call was started before and its
    outcome is unknown"""


class ToolWaiting(AgentEvent):
    """A tool call waits for a person to send `Approve` or `Deny`."""

    KIND = "agent.tool.waiting"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    why: Literal["approval", "unknown"] = "approval"
    """"approval": the tool requires approval. "unknown": the call was started before and its outcome is unknown"""


class ToolUpdated(AgentEvent):
    """A tool's partial result changed. The live deltas contain the partial result."""

    KIND = "agent.tool.updated"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str


class ToolEnded(AgentEvent):
    """A tool call ended, with a result or an error."""

    KIND = "agent.tool.ended"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    is_error: bool
    """whether the model reads an error: true for every outcome but `completed`"""
    outcome: ToolOutcome | None = None
    """how the call ended; None in logs of earlier versions, which have only `is_error`"""
    position: Position | None = None
    """position of the result"""
    child_loop_id: str | None = None


class Progress(AgentEvent):
    """A progress text that a running tool shows to people. It is not part of the tool's result."""

    KIND = "agent.progress"
    turn_id: TurnId
    tool_call_id: str
    tool_name: str
    text: str


# Events about changes of the context: compaction, pruning and reverting.


class CompactionStarted(AgentEvent):
    """A model call that writes a summary of the context is about to start."""

    KIND = "agent.compaction.started"
    loop_id: str
    estimated_tokens: int
    message_count: int


class CompactionEnded(AgentEvent):
    """The context was compacted."""

    KIND = "agent.compaction.ended"
    loop_id: str
    messages_before: int
    messages_after: int
    estimated_tokens_before: int
    estimated_tokens_after: int
    loops_compacted: int | None = None
    position: Position | None = None
    """position of the `Compaction` entry"""


class CompactionFailed(AgentEvent):
    """A model call that writes a summary failed. Its usage is still part of the session's usage."""

    KIND = "agent.compaction.failed"
    loop_id: str
    reason: str
    is_interrupted: bool = False
    """whether a command or the end of the worker interrupted the call, so that the next attempt may succeed"""
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None


class PruneApplied(AgentEvent):
    """Messages were left out of the context."""

    KIND = "agent.prune.applied"
    loop_id: str
    tokens_removed: int
    pruned: Positions
    messages_removed: int | None = None
    """number of removed messages, if `pruned` does not name all of them"""
    pruned_timestamps: Annotated[tuple[int, ...] | None, Field(strict=False)] = None
    """timestamps of the removed messages in milliseconds UTC. The `two-lane-agent` system refers to messages by
    timestamp, and several messages may have the same timestamp"""
    memo: str | None = None


class RevertApplied(AgentEvent):
    """The agent tried to go back to an earlier entry. `applied` is True if the agent went back."""

    KIND = "agent.revert.applied"
    loop_id: str
    category: RevertCategory
    target: Position | None = None
    target_node: NodeId | None = None
    """node of the entry at `target` in the conversation tree of the author's system"""
    abandoned_nodes: Annotated[tuple[NodeId, ...], Field(strict=False)] = ()
    summary: Position | None = None
    """position of the entry that summarizes the abandoned branch"""
    applied: bool
    reason: str | None = None


# Events about a session's environment: answered commands, its agent, and sessions of sub-agents.


class ControlAnswered(AgentEvent):
    """The worker answered a command."""

    KIND = "agent.control.answered"
    control: Position
    """position of the command"""
    outcome: Literal["applied", "late", "repeated", "refused"]
    """"applied": the command takes effect. "late": the command's target has already ended. "repeated": the command's
    effect is already in place. "refused": the command cannot be read, or its target does not exist; see `reason`"""
    reason: str | None = None


class SessionAssigned(AgentEvent):
    """The session was handed over to another agent, whose worker continues its loop."""

    KIND = "agent.session.assigned"
    agent: str
    """the new agent"""
    previous: str | None = None
    """the session's agent before the handover; None if the session had no agent"""
    by: str | None = None
    """the person or program that handed the session over"""
    reason: str | None = None


class SessionLinked(AgentEvent):
    """A session was started for a tool call of another session. Both logs contain the event."""

    KIND = "agent.session.linked"
    parent: str
    child: str
    turn_id: TurnId
    """the turn of the parent session that made the tool call"""
    tool_call_id: str
    agent: str
    """name of the agent that runs the child"""
    depth: int = 1
    """number of ancestors of the child"""


# An event refers to messages, tool calls and results by id and position. It never repeats their content, so a reader of
# the extension lane alone sees no content of the LLM lane. Publish an event with `as_extension()`, and read an event
# with `parse_event`.
#
# Source: the `two-lane-agent` system's `AgentEvent`, with turn ids added.

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
        SessionAssigned,
        SessionLinked,
        RequestDefined,
    )
}


def parse_event(message: ExtensionMessage) -> AgentEvent | None:
    """Return the agent event that an extension message holds; None if it has a kind other than `agent.…`.

    Raises:
        InvalidArgument: the argument is no extension message.
        UnknownKind: the message has a kind `agent.…` that does not exist.
        DecodeError: the data does not fit the event.
    """
    require_instance("message", message, ExtensionMessage, EXTENSION_ADVICE)
    if not message.kind.startswith("agent."):
        return None
    event = _EVENTS.get(message.kind)
    if event is None:
        raise UnknownKind(message.kind)
    return event.read(message.data)


# Commands to a running agent: typed messages of kind `control.<verb>` in the extension lane.


_CALL_HASH = re.compile(r"[0-9a-f]{64}")


def _check_call_hash(text: str) -> str:
    if _CALL_HASH.fullmatch(text) is None:
        advice = "pass the call's `call_hash`, a SHA-256 of 64 digits 0-9 and a-f, or none"
        raise PydanticCustomError("call_hash", "{advice}", {"advice": advice})
    return text


class Control(ExtensionData):
    """The base class of all commands. `KIND` is the kind of the extension message that contains the command."""

    by: str | None = None
    """the person or program that sent the command, for readers of the log"""


class Abort(Control):
    """End the loop. If no loop is open, the command is answered as "late"."""

    KIND = "control.abort"
    loop_id: str | None = None
    """the loop to end. None ends the open loop"""
    when: Literal["now", "turn"] = "now"
    """"now": cancel the model call and the tools; the stop reason is `aborted`. "turn": finish the current turn first;
    the stop reason is `userStop`"""
    reason: str | None = None


class Steer(Control):
    """Send a user's message to the running loop."""

    KIND = "control.steer"
    position: Position
    """position of the user's message in the LLM lane, appended in the same publish"""
    when: Literal["next", "now"] = "next"
    """"next": include the message in the next request. "now": also cut the current answer and skip tools that still
    run"""


class Approve(Control):
    """Approve a tool call that waits for a person.

    If the call already has a result or a decision, the command is answered as "late"."""

    KIND = "control.approve"
    turn_id: TurnId
    tool_call_id: str
    call_hash: Annotated[str, AfterValidator(_check_call_hash)] | None = None
    """`ToolCallBlock.call_hash` of the call that the person saw. If the call has another hash, the command is answered
    as "refused". None approves the call whatever its arguments are"""


class Deny(Control):
    """Deny a tool call that waits for a person. The model reads that the call was denied, but not the reason.

    If the call already has a result or a decision, the command is answered as "late".
    """

    KIND = "control.deny"
    turn_id: TurnId
    tool_call_id: str
    reason: str | None = None


class Pause(Control):
    """Stop after the current turn; the loop ends as paused. Later messages of users wait until `Resume`."""

    KIND = "control.pause"
    reason: str | None = None


class Handoff(Control):
    """Pause the loop and hand the session to a person until `Resume`."""

    KIND = "control.handoff"
    to: str | None = None
    """the person that takes over"""
    reason: str | None = None


class Resume(Control):
    """Continue after `Pause` or `Handoff`: continue the stopped loop, with the messages that users have sent since."""

    KIND = "control.resume"


class Compact(Control):
    """Compact the context before the next turn, regardless of its size."""

    KIND = "control.compact"


CONTROLS: Mapping[str, type[Control]] = {
    control.KIND.removeprefix(CONTROL): control
    for control in (Abort, Steer, Approve, Deny, Pause, Handoff, Resume, Compact)
}
"""classes of the commands by verb: "abort" is the verb of the kind `control.abort`"""


def parse_control(message: ExtensionMessage) -> Control | None:
    """Return the command that an extension message contains; None if its kind is not a command.

    Raises:
        InvalidArgument: the argument is no extension message.
        UnknownKind: the message has a kind `control.…` that does not exist.
        DecodeError: the data does not fit the command.
    """
    require_instance("message", message, ExtensionMessage, EXTENSION_ADVICE)
    if not message.is_control:
        return None
    control = CONTROLS.get(message.kind.removeprefix(CONTROL))
    if control is None:
        raise UnknownKind(message.kind)
    return control.read(message.data)
