"""What the page shows beside the lanes: turns with what they took, and the session's sums."""

from collections.abc import Mapping

from bus.session import Session
from handlers.projections.projection import project
from handlers.projections.turns import TURNS, Turn
from handlers.projections.usage import USAGE, summary

__all__ = ("turns_view", "usage_view")

TURNS_SHOWN = 200
"""The newest ones; a long session has thousands, and the page asks after each turn."""


async def turns_view(session: Session) -> Mapping[str, object]:
    """`{"count": <all>, "turns": [<the newest 200, oldest first>]}`, each with where it stands and what it took.

    Raises:
        BusError: the log could not be read.
    """
    turns = (await project(session, TURNS)).state.turns
    first = max(0, len(turns) - TURNS_SHOWN)
    return {"count": len(turns), "turns": [_turn(turn, first + index) for index, turn in enumerate(turns[first:])]}


async def usage_view(session: Session) -> Mapping[str, object]:
    """Tokens and US dollars of the whole session; `cost` is null where nothing is known of it.

    Raises:
        BusError: the log could not be read.
    """
    total = (await project(session, USAGE)).state.total
    return {**summary(total.usage), "calls": total.calls, "calls_of_unknown_cost": total.calls_of_unknown_cost}


def _turn(turn: Turn, index: int) -> Mapping[str, object]:
    turn_id = turn.turn_id
    return {
        "index": index,
        "loopId": None if turn_id is None else turn_id.loop_id,
        "turnIndex": None if turn_id is None else turn_id.turn_index,
        "status": turn.status,
        "stopReason": turn.stop_reason,
        "model": turn.model,
        "prompts": list(turn.prompts),
        "message": turn.message,
        "tools": [{"name": run.name, "isError": run.is_error, "result": run.result} for run in turn.tools],
        "usage": None if turn.usage is None else {**summary(turn.usage)},
        "started": turn.started,
        "ended": turn.ended,
    }
