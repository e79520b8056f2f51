"""Events of a loop, from its first turn to its last."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.usage import Usage

__all__ = ("AgentEnded", "AgentStarted", "InputRejected", "ParallelLoopsEnded", "ParallelLoopsStarted")


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
