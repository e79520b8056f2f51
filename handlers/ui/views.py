"""Views of a session that the page shows beside the lanes: the agent's status and the usage."""

from collections.abc import Mapping

from lanebus.bus.bus import Bus
from lanebus.bus.groups.failed_work import FailedWork
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.events import ToolWaiting
from lanebus.bus.session.session import Session
from lanebus.handlers.projections.agent_activity import decisions, doing, own_loop, waiting_calls
from lanebus.handlers.projections.agent_status import STATUS, Command, LoopStatus
from lanebus.handlers.projections.cards import CardState, look_at_state
from lanebus.handlers.projections.usage import USAGE, summary
from lanebus.handlers.projections.views import Views
from lanebus.handlers.ui.session_list import decision_json, failure_json

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


async def state_of(views: Views, bus: Bus, head: SessionHead) -> tuple[CardState, FailedWork | None]:
    """Return what a session does, and its work that is dead or tried again, as the list of sessions tells it.

    Raises:
        BusError: the log or the state of its work could not be read.
    """
    session = bus.session(head.session)
    work = (await bus.failed_work().read(session.id)).get(session.id)
    state = await look_at_state(session, head, work, views)
    return state, work if state in {"dead", "retrying"} else None


async def status_view(
    views: Views, session: Session, state: CardState, work: FailedWork | None
) -> Mapping[str, object]:
    """Return what the agent does, the calls that wait for a person, and the commands without an answer.

    Args:
        views: cached states of the projections.
        session: the session.
        state: what `state_of` returned.
        work: the failed work to tell; None tells none.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, STATUS)
    status, loop = now.state, own_loop(session.id, now.state)
    is_open = loop is not None and (loop.ended is None or loop.is_stopped)
    decided = decisions(status)
    waiting = waiting_calls(loop) if loop is not None and is_open else ()
    return {
        "position": now.position,
        "state": state,
        "failure": failure_json(work),
        "doing": doing(session.id, status),
        "loop": None if loop is None else _loop(loop),
        "waiting": [_waiting(call, decided.get(call.tool_call_id)) for call in waiting],
        "commands": [{"position": each.position, "kind": each.message.kind} for each in status.commands],
    }


def _loop(loop: LoopStatus) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "turnIndex": None if loop.turn is None else loop.turn.turn_index,
        "started": loop.started,
        "ended": loop.ended,
    }


def _waiting(call: ToolWaiting, decision: Command | None) -> Mapping[str, object]:
    return {
        "turnId": {"loopId": call.turn_id.loop_id, "turnIndex": call.turn_id.turn_index},
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "why": call.why,
        "decision": decision_json(decision),
    }
