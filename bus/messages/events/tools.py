"""Events of a tool call."""

from typing import Literal

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.turn import TurnId

__all__ = ("Progress", "ToolEnded", "ToolStarted", "ToolUpdated", "ToolWaiting")


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
