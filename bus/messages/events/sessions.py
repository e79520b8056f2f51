"""Events between a session and those outside of its loop: answered commands, and sub-agents' sessions."""

from typing import Literal

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.turn import TurnId

__all__ = ("ControlAnswered", "SessionLinked")


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
