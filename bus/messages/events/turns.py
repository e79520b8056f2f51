"""Events of a turn: its request, its message and its usage."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent, Positions
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage

__all__ = (
    "MessageEnded",
    "MessageStarted",
    "RequestDefined",
    "ToolDefinition",
    "TurnEnded",
    "TurnStarted",
    "UsageSettled",
)


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
