"""Name the activity of a session's agent in one word, for a person who watches the session. Pure."""

from collections.abc import Mapping
from typing import Literal

from lanebus.bus.messages.control import Approve, Deny
from lanebus.bus.messages.events import ToolWaiting
from lanebus.handlers.projections.agent_status import Command, LoopStatus, Status

__all__ = ("Doing", "decisions", "doing", "earlier_decision", "own_loop", "waiting_calls")

Doing = Literal["idle", "model", "tools", "waiting", "queued", "paused", "handoff"]
"""The activity of a session's agent.

`idle`: no loop is open. `model`: the agent waits for the model's answer. `tools`: the agent runs tools. `waiting`: at
least one tool call waits for a person; the loop continues when all such calls are approved or denied. `queued`: all
calls that waited were approved or denied, and a worker has to apply this. `paused`, `handoff`: workers do not answer
until the session is resumed.
"""


def doing(session: str, status: Status) -> Doing:
    """Return the activity of the agent of `session` according to `status`."""
    if status.halted is not None:
        return status.halted
    loop = own_loop(session, status)
    if loop is None or loop.ended is not None:
        return "idle"
    if waiting := waiting_calls(loop):
        decided = decisions(status)
        return "queued" if all(call.tool_call_id in decided for call in waiting) else "waiting"
    return "tools" if loop.calls_started else "model"


def own_loop(session: str, status: Status) -> LoopStatus | None:
    """Return the newest loop if it belongs to `session`, otherwise None. In a fork, it may belong to the parent."""
    loop = status.loop
    return loop if loop is not None and loop.loop_id.partition(".")[0] == session else None


def waiting_calls(loop: LoopStatus) -> tuple[ToolWaiting, ...]:
    """Return the tool calls that wait for the approval or denial of a person, in the order in which they began to wait.

    This includes the calls of `decisions`: a call waits until a worker has applied the command. The calls of a stopped
    loop wait until the loop is continued.
    """
    over = loop.calls_ended.keys() if loop.is_stopped else loop.calls_answered.keys() | loop.calls_ended.keys()
    return tuple(call for name, call in loop.calls_waiting.items() if name not in over)


def decisions(status: Status) -> Mapping[str, Command]:
    """Return the commands that approve or deny waiting calls and that no worker has carried out, by tool call id.

    A worker applies the first command for a call, so only this one is returned.
    """
    if status.loop is None:
        return {}
    waiting = {call.tool_call_id: call.turn_id for call in waiting_calls(status.loop)}
    found = {call: command for call, command in status.loop.calls_answered.items() if call in waiting}
    for command in status.commands:
        control = command.control
        if isinstance(control, Approve | Deny) and waiting.get(control.tool_call_id) == control.turn_id:
            found.setdefault(control.tool_call_id, command)
    return found


def earlier_decision(status: Status, control: Approve | Deny) -> Command | None:
    """Return the command that has approved or denied the call of `control`; None if the log shows none."""
    loop, call = status.loop, control.tool_call_id
    question = None if loop is None else loop.calls_waiting.get(call)
    if loop is None or question is None or question.turn_id != control.turn_id:
        return None
    return loop.calls_answered.get(call) or decisions(status).get(call)
