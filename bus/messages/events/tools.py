"""Events of a tool call."""

from typing import Literal

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.events.event import AgentEvent
from lanebus.bus.messages.turn import TurnId

__all__ = ("Progress", "ToolEnded", "ToolOutcome", "ToolStarted", "ToolUpdated", "ToolWaiting")


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
