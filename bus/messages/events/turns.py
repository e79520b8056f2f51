"""Events of a turn: what the model is asked with, what it says, and what the call took."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent, Positions
from lanebus.bus.messages.message import StopReason
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
