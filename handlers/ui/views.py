"""Views of a session that the page shows beside the lanes: the agent's status and the usage."""

from collections.abc import Mapping

from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.session.session import Session
from lanebus.handlers.projections.agent_activity import doing, own_loop, waiting_calls
from lanebus.handlers.projections.agent_status import STATUS, LoopStatus
from lanebus.handlers.projections.usage import USAGE, summary
from lanebus.handlers.projections.views import Views

__all__ = ("status_view", "usage_view")


async def usage_view(views: Views, session: Session) -> Mapping[str, object]:
    """Return the tokens and the cost in US dollars of a session.

    `cost` is null if no call has a known cost. `countedFrom` is the first counted position if earlier entries were
    trimmed before they were counted, else null.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, USAGE)
    total = now.state.total
    return {
        **summary(total.usage),
        "calls": total.calls,
        "calls_of_unknown_cost": total.calls_of_unknown_cost,
        "countedFrom": now.counted_from,
    }


async def status_view(views: Views, session: Session) -> Mapping[str, object]:
    """Return what the agent does, the calls that wait for a person, and the commands without an answer.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, STATUS)
    status, loop = now.state, own_loop(session.id, now.state)
    is_open = loop is not None and (loop.ended is None or loop.is_stopped)
    return {
        "position": now.position,
        "doing": doing(session.id, status),
        "loop": None if loop is None else _loop(loop),
        "waiting": [_waiting(call) for call in waiting_calls(loop)] if loop is not None and is_open else [],
        "commands": [{"position": each.position, "kind": each.message.kind} for each in status.commands],
    }


def _loop(loop: LoopStatus) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "turnIndex": None if loop.turn is None else loop.turn.turn_index,
        "started": loop.started,
        "ended": loop.ended,
    }


def _waiting(call: ToolWaiting) -> Mapping[str, object]:
    return {
        "turnId": {"loopId": call.turn_id.loop_id, "turnIndex": call.turn_id.turn_index},
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "why": call.why,
    }
