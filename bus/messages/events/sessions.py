"""Events about a session's environment: answered commands, its agent, and sessions of sub-agents."""

from typing import Literal

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.turn import TurnId

__all__ = ("ControlAnswered", "SessionAssigned", "SessionLinked")


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
