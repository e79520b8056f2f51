"""What a session's agent does, in a word, for people who look on. Pure."""

from typing import Literal

from lanebus.bus.messages.events import ToolWaiting
from lanebus.handlers.projections.agent_status import LoopStatus, Status

__all__ = ("Doing", "doing", "own_loop", "waiting_calls")

Doing = Literal["idle", "model", "tools", "waiting", "paused", "handoff"]
"""idle: no loop is open. model: its turn asks the model. tools: it runs tools. waiting: at least one call waits for a
person, and the loop goes on once all have their word. paused, handoff: nothing is answered until it is resumed"""


def doing(session: str, status: Status) -> Doing:
    """What the session's agent does as of this status."""
    if status.halted is not None:
        return status.halted
    loop = own_loop(session, status)
    if loop is None or loop.ended is not None:
        return "idle"
    if waiting_calls(loop):
        return "waiting"
    return "tools" if loop.calls_started else "model"


def own_loop(session: str, status: Status) -> LoopStatus | None:
    """The newest loop, if it is the session's own: a fork shares the ones of its parent."""
    loop = status.loop
    return loop if loop is not None and loop.loop_id.partition(".")[0] == session else None


def waiting_calls(loop: LoopStatus) -> tuple[ToolWaiting, ...]:
    """The calls that a person has yet to approve or deny, in the order in which they began to wait."""
    over = loop.calls_answered.keys() | loop.calls_ended.keys()
    return tuple(call for name, call in loop.calls_waiting.items() if name not in over)
