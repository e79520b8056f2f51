"""Name the activity of a session's agent in one word, for a person who watches the session. Pure."""

from typing import Literal

from lanebus.bus.messages.events import ToolWaiting
from lanebus.handlers.projections.agent_status import LoopStatus, Status

__all__ = ("Doing", "doing", "own_loop", "waiting_calls")

Doing = Literal["idle", "model", "tools", "waiting", "paused", "handoff"]
"""The activity of a session's agent.

`idle`: no loop is open. `model`: the agent waits for the model's answer. `tools`: the agent runs tools. `waiting`: at
least one tool call waits for a person; the loop continues when all such calls are approved or denied. `paused`,
`handoff`: workers do not answer until the session is resumed.
"""


def doing(session: str, status: Status) -> Doing:
    """Return the activity of the agent of `session` according to `status`."""
    if status.halted is not None:
        return status.halted
    loop = own_loop(session, status)
    if loop is None or loop.ended is not None:
        return "idle"
    if waiting_calls(loop):
        return "waiting"
    return "tools" if loop.calls_started else "model"


def own_loop(session: str, status: Status) -> LoopStatus | None:
    """Return the newest loop if it belongs to `session`, otherwise None. In a fork, it may belong to the parent."""
    loop = status.loop
    return loop if loop is not None and loop.loop_id.partition(".")[0] == session else None


def waiting_calls(loop: LoopStatus) -> tuple[ToolWaiting, ...]:
    """Return the tool calls that a person has yet to approve or deny, in the order in which they began to wait."""
    over = loop.calls_answered.keys() | loop.calls_ended.keys()
    return tuple(call for name, call in loop.calls_waiting.items() if name not in over)
