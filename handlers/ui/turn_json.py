"""The turns and the timeline of a session as JSON, for lists and waterfalls."""

from collections.abc import Iterator, Mapping

from lanebus.bus.messages.usage import Usage
from lanebus.bus.session.session import Session
from lanebus.handlers.projections.loops import total_usage
from lanebus.handlers.projections.projection import Projected
from lanebus.handlers.projections.timeline import TIMELINE
from lanebus.handlers.projections.timeline_state import (
    CallMark,
    CompactionMark,
    LoopMark,
    OpenDecision,
    TimelineState,
    ToolMark,
    TurnMark,
    WaitMark,
)
from lanebus.handlers.projections.turns_state import Loop, ToolRun, Turn
from lanebus.handlers.projections.usage import summary
from lanebus.handlers.projections.views import Views
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS

__all__ = ("timeline_view", "turns_view")

_NO_MARK = ToolMark(id="")


async def turns_view(
    views: Views, session: Session, limit: int = DEFAULT_UI_BOUNDS.turns, *, first: int | None = None
) -> Mapping[str, object]:
    """Return `{"count": <all turns>, "countedFrom": …, "turns": [<oldest first>]}`.

    `countedFrom` is the first counted position if earlier entries were trimmed before they were counted, else null.

    Args:
        views: cached states of the projections.
        session: the session.
        limit: maximum number of turns to return.
        first: index of the first turn to return, from 0; None returns the newest turns.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, TIMELINE)
    return {
        "count": len(now.state.marks),
        "countedFrom": now.counted_from,
        "turns": [_turn(now.state, index) for index in _window(now, first, limit)],
    }


async def timeline_view(
    views: Views, session: Session, limit: int = DEFAULT_UI_BOUNDS.turns, *, first: int | None = None
) -> Mapping[str, object]:
    """Return the turns of a window, with the loops and compactions among them.

    `started` and `ended` are those of the whole session, and `usage` is that of all its turns.

    Args:
        views: cached states of the projections.
        session: the session.
        limit: maximum number of turns to return.
        first: index of the first turn to return, from 0; None returns the newest turns.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, TIMELINE)
    state, window = now.state, _window(now, first, limit)
    shown = [_turn(state, index) for index in window]
    names = {turn.loop_id for turn in (state.turns.turn_chunks[index] for index in window)}
    begin = state.marks[window[0]].position if window else 0
    end = state.marks[window[-1] + 1].position if window and window[-1] + 1 < len(state.marks) else None
    is_newest = end is None
    return {
        "position": now.position,
        "count": len(state.marks),
        "countedFrom": now.counted_from,
        "first": window.start,
        "started": _began(state),
        "ended": None if state.turns.running else _ended(state),
        "usage": {**summary(total_usage(state.turns))},
        "loops": [
            _loop(loop, mark)
            for loop, mark in zip(state.turns.loop_chunks, state.loops, strict=True)
            if loop.loop_id in names or (is_newest and loop.ended is None)
        ],
        "turns": shown,
        "compactions": [
            _compaction(each)
            for each in state.compactions
            if each.position >= begin and (end is None or each.position < end)
        ],
    }


def _window(now: Projected[TimelineState], first: int | None, limit: int) -> range:
    count = len(now.state.marks)
    start = max(0, count - limit) if first is None else min(first, count)
    return range(start, min(start + limit, count))


def _began(state: TimelineState) -> float | None:
    return None if not state.marks else _start(state.turns.turn_chunks[0], state.marks[0])


def _ended(state: TimelineState) -> float | None:
    return None if not state.marks else state.turns.turn_chunks[len(state.marks) - 1].ended


def _start(turn: Turn, mark: TurnMark) -> float:
    return min([turn.started, *(call.started for call in mark.calls if call.started is not None)])


def _turn(state: TimelineState, index: int) -> Mapping[str, object]:
    turn, mark = state.turns.turn_chunks[index], state.marks[index]
    before = state.turns.turn_chunks[index - 1] if index else None
    is_retry = before is not None and before.status == "failed" and before.loop_id == turn.loop_id is not None
    turn_id, tools = turn.turn_id, {tool.id: tool for tool in mark.tools}
    pending = dict[str, OpenDecision]()
    for decision in state.decisions.values():
        pending.setdefault(decision.tool_call_id, decision)  # a worker applies the first
    return {
        "index": index,
        "turnId": None if turn_id is None else str(turn_id),
        "loopId": None if turn_id is None else turn_id.loop_id,
        "turnIndex": None if turn_id is None else turn_id.turn_index,
        "trigger": turn.trigger,
        "status": turn.status,
        "stopReason": turn.stop_reason,
        "isRetry": is_retry,
        "provider": turn.provider,
        "model": turn.model,
        "prompts": list(turn.prompts),
        "message": turn.message,
        "calls": [_call(call) for call in mark.calls],
        "tools": [_tool(run, tools.get(run.id, _NO_MARK), pending.get(run.id)) for run in turn.tools],
        "usage": _usage(turn.usage),
        "started": _start(turn, mark),
        "ended": turn.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
        "lastPosition": max([mark.last, *_positions(turn)]),
        "entries": mark.entries,
    }


def _positions(turn: Turn) -> Iterator[int]:
    yield from turn.results
    if turn.message is not None:
        yield turn.message


def _usage(usage: Usage | None) -> Mapping[str, object] | None:
    return None if usage is None else {**summary(usage)}


def _call(call: CallMark) -> Mapping[str, object]:
    return {
        "position": call.position,
        "started": call.started,
        "ended": call.ended,
        "message": call.answer,
        "messageId": call.message_id,
        "stopReason": call.stop_reason,
    }


def _tool(run: ToolRun, mark: ToolMark, pending: OpenDecision | None) -> Mapping[str, object]:
    return {
        "id": run.id,
        "name": run.name,
        "isError": run.is_error,
        "outcome": run.outcome,
        "result": run.result,
        "started": run.started,
        "ended": run.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
        "attempts": run.attempts,
        "waits": [_wait(wait, pending) for wait in mark.waits],
        "childLoop": run.child_loop,
        "childSession": mark.child,
        "childAgent": mark.child_agent,
    }


def _wait(wait: WaitMark, pending: OpenDecision | None) -> Mapping[str, object]:
    """Return a wait. A decision that no worker has applied has no `command` yet."""
    decided = wait if pending is None or wait.until is not None else pending
    return {
        "position": wait.position,
        "why": wait.why,
        "since": wait.since,
        "until": wait.until,
        "decision": decided.decision,
        "command": wait.command,
        "by": decided.by,
    }


def _loop(loop: Loop, mark: LoopMark) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "agent": loop.agent,
        "parent": loop.parent,
        "continuation": loop.continuation,
        "status": loop.status,
        "stopReason": loop.stop_reason,
        "isSelected": loop.is_selected,
        "usage": _usage(loop.said_usage),
        "started": loop.started,
        "ended": loop.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
    }


def _compaction(mark: CompactionMark) -> Mapping[str, object]:
    return {
        "loopId": mark.loop_id,
        "status": mark.status,
        "tokensBefore": mark.tokens_before,
        "tokensAfter": mark.tokens_after,
        "started": mark.started,
        "ended": mark.ended,
        "startedPosition": mark.position,
        "endedPosition": mark.ended_at,
    }
