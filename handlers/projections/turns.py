"""Fold the turns and loops of a session: their prompts, tools, outcomes, times and usage.

Agent events say when a turn and its tools start and end. The LLM lane contains the answers. Imported history has no
events: in such a history, each assistant message and the tool results that follow are one turn.

The state contains positions of messages, never the text of messages. Times are seconds UTC by the server's clock, so
imported turns have the time of the import.
"""

from collections.abc import Callable

from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage, StopReason
from lanebus.bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageSettled,
    parse_event,
)
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Usage
from lanebus.bus.wire.envelope import DecodeFailure, Envelope
from lanebus.handlers.persistent_list import FlatList
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.estimates import added, settled, take_early, with_early
from lanebus.handlers.projections.turns_state import (
    Loop,
    Status,
    ToolRun,
    Turn,
    TurnsState,
    change_loop,
    change_turn,
    changed,
    ensure_loop,
    ensure_turn,
    find_turn,
)

__all__ = ("TURNS", "Loop", "Status", "ToolRun", "Turn", "TurnsState", "abandoned")


def _evolve(state: TurnsState, envelope: Envelope) -> TurnsState:
    match envelope.message:
        case ExtensionMessage() as message:
            try:
                event = parse_event(message)
            except MessageError:
                return changed(state, problems=state.problems + 1)
            if isinstance(event, UsageSettled):
                return _settle(state, event, envelope.position)
            return state if event is None else _on_event(state, event, envelope.time)
        case UserMessage(turn_id=None):
            return changed(state, waiting=state.waiting.appended(envelope.position))
        case UserMessage(turn_id=TurnId() as turn_id):
            state, index = ensure_turn(state, turn_id, envelope.time)
            prompts = _united(state.turn_chunks[index].prompts, (envelope.position,))
            return change_turn(state, index, prompts=prompts)
        case AssistantMessage() as message:
            return _on_answer(state, message, envelope)
        case ToolResultMessage() as message:
            return _on_result(state, message, envelope)
        case DecodeFailure():
            return changed(state, problems=state.problems + 1)
        case _:
            return state


# --- agent events -------------------------------------------------------------------------------------------------


def _on_event(state: TurnsState, event: AgentEvent, time: float) -> TurnsState:
    match event:
        case AgentStarted():
            return _start_loop(state, event, time)
        case AgentEnded():
            return _end_loop(state, event, time)
        case ParallelLoopsStarted():
            return changed(state, parallel=event.loop_ids)
        case ParallelLoopsEnded():
            return _select(state, event)
        case TurnStarted():
            return _start_turn(state, event, time)
        case TurnEnded():
            return _end_turn(state, event, time)
        case ToolStarted(attempt=attempt):

            def start(run: ToolRun) -> ToolRun:
                return changed(run, started=run.started or time, attempts=attempt or run.attempts + 1)

            return _on_tool(state, event, start, time)
        case ToolEnded(is_error=is_error, outcome=outcome, position=position, child_loop_id=child):

            def end(run: ToolRun) -> ToolRun:
                result, loop = position or run.result, child or run.child_loop
                return changed(run, ended=time, is_error=is_error, outcome=outcome, result=result, child_loop=loop)

            return _on_tool(state, event, end, time)
        case _:
            return state


def _start_loop(state: TurnsState, event: AgentStarted, time: float) -> TurnsState:
    known = state.place(event.loop_id)
    if known is not None and state.loop_chunks[known].agent is not None:
        # A worker that takes over a loop publishes `AgentStarted` again. The loop continues and keeps its state.
        return state
    others = [loop_id for loop_id in state.running if loop_id != event.loop_id]
    is_child = event.continuation == "initial" and event.parent_loop_id in others
    is_beside = is_child or event.loop_id in state.parallel
    if not is_beside:
        # A session runs one loop at a time. A loop that is open when the next loop starts has lost its end event.
        for loop_id in others:
            state = _close_loop(state, loop_id, time, status="aborted")
    state, index = ensure_loop(state, event.loop_id, time)
    return change_loop(
        state,
        index,
        agent=event.agent,
        parent=event.parent_loop_id,
        continuation=event.continuation,
        group=state.parallel if event.loop_id in state.parallel else (),
        is_beside=is_beside,
        status="running",
        ended=None,
    )


def _select(state: TurnsState, event: ParallelLoopsEnded) -> TurnsState:
    """Record which of the parallel loops the evaluation selected."""
    for loop in state.loops:
        if event.selected_loop_id in loop.group:
            state, place = ensure_loop(state, loop.loop_id, loop.started)
            state = change_loop(state, place, is_selected=loop.loop_id == event.selected_loop_id)
    return state


def _end_loop(state: TurnsState, event: AgentEnded, time: float) -> TurnsState:
    status = "rejected" if event.rejection is not None else _status(event.stop_reason)
    said = Usage().combine(event.usage)  # combining drops `raw`, the provider's own object
    changes = {"stop_reason": event.stop_reason, "rejection": event.rejection, "said_usage": said}
    return _close_loop(state, event.loop_id, time, status=status, **changes)


def abandoned(state: TurnsState, time: float) -> TurnsState:
    """Return the state with all open loops and their open turns ended as aborted. Messages and usage are kept.

    Args:
        state: the state to change.
        time: the end of these loops and turns, seconds UTC.
    """
    for loop_id in state.running:
        state = _close_loop(state, loop_id, time, status="aborted")
    return state


def _close_loop(state: TurnsState, loop_id: str, time: float, **changes: object) -> TurnsState:
    """End a loop and abort its open turns. Messages and usage are kept."""
    state, place = ensure_loop(state, loop_id, time)
    left = state.loop_chunks[place].turns
    index = len(state.turn_chunks) - 1
    while left and index >= 0:
        turn = state.turn_chunks[index]
        if turn.loop_id == loop_id:
            left -= 1
            if turn.status == "running":
                state = change_turn(state, index, status="aborted", ended=time)
        index -= 1
    return change_loop(state, place, ended=time, **changes)


def _start_turn(state: TurnsState, event: TurnStarted, time: float) -> TurnsState:
    state, index = ensure_turn(state, event.turn_id, time)
    turn = state.turn_chunks[index]
    if state.waiting:
        read = {*event.prompts}
        state = changed(state, waiting=FlatList(each for each in state.waiting if each not in read))
    # A worker that takes over a loop restarts an interrupted turn, so the turn runs again. An answered turn keeps its
    # status.
    runs = turn.message is None
    return change_turn(
        state,
        index,
        has_events=True,
        trigger=event.trigger,
        prompts=_united(turn.prompts, event.prompts),
        status="running" if runs else turn.status,
        ended=None if runs else turn.ended,
    )


def _end_turn(state: TurnsState, event: TurnEnded, time: float) -> TurnsState:
    state, index = ensure_turn(state, event.turn_id, time)
    return change_turn(
        state,
        index,
        has_events=True,
        status=_status(event.stop_reason),
        stop_reason=event.stop_reason,
        message=event.message or state.turn_chunks[index].message,
        ended=time,
    )


def _settle(state: TurnsState, event: UsageSettled, position: int) -> TurnsState:
    index = find_turn(state, event.turn_id)
    pending = None if index is None else state.turn_chunks[index].pending
    if index is None or pending is None or str(event.message) not in pending.estimates:
        return changed(state, early=with_early(state.early, position, event))
    usage, pending = settled(pending, event)
    return change_turn(state, index, usage=usage, pending=pending)


def _on_tool(
    state: TurnsState, event: ToolStarted | ToolEnded, change: Callable[[ToolRun], ToolRun], time: float
) -> TurnsState:
    state, index = ensure_turn(state, event.turn_id, time)
    tools = state.turn_chunks[index].tools
    if not tools.places("id", event.tool_call_id):
        tools = tools.appended(ToolRun(id=event.tool_call_id, name=event.tool_name))
    for place in tools.places("id", event.tool_call_id):
        tools = tools.replaced(place, change(tools[place]))
    return change_turn(state, index, tools=tools)


# --- messages of the LLM lane -------------------------------------------------------------------------------------


def _on_answer(state: TurnsState, message: AssistantMessage, envelope: Envelope) -> TurnsState:
    if message.turn_id is None:
        turn = Turn(prompts=tuple(state.waiting), started=envelope.time)
        state = changed(state, turn_chunks=state.turn_chunks.appended(turn), waiting=FlatList())
        index = len(state.turn_chunks) - 1
    else:
        state, index = ensure_turn(state, message.turn_id, envelope.time)
        turn = state.turn_chunks[index]
    known = {run.id for run in turn.tools}
    called = [ToolRun(id=call.id, name=call.name) for call in message.tool_calls() if call.id not in known]
    usage, early = take_early(state.early, envelope.position, message.usage)
    total, pending = turn.usage, turn.pending
    if usage is not None:
        total, pending = added(total or Usage(), pending, envelope.position, usage)
    state = changed(state, early=early)
    state = change_turn(
        state,
        index,
        message=envelope.position,
        provider=message.provider,
        model=message.model,
        tools=turn.tools.appended(*called),
        usage=total,
        pending=pending,
        stop_reason=message.stop_reason,
    )
    if turn.has_events:
        return state  # `TurnEnded` or the end of the loop ends this turn
    status = _status(message.stop_reason)
    state = change_turn(state, index, status=status, ended=envelope.time)
    loop = None if message.turn_id is None else state.place(message.turn_id.loop_id)
    if loop is None or state.loop_chunks[loop].agent is not None:
        return state
    return change_loop(state, loop, status=status, stop_reason=message.stop_reason, ended=envelope.time)


def _on_result(state: TurnsState, message: ToolResultMessage, envelope: Envelope) -> TurnsState:
    index = _find_call(state, message)
    if index is None:
        return state
    turn = state.turn_chunks[index]
    tools = turn.tools
    for place in tools.places("id", message.tool_call_id):
        run, time = tools[place], envelope.time
        run = changed(run, result=envelope.position, is_error=message.is_error, ended=run.ended or time)
        tools = tools.replaced(place, run)
    ended = turn.ended if turn.has_events else envelope.time
    return change_turn(state, index, tools=tools, ended=ended)


def _find_call(state: TurnsState, message: ToolResultMessage) -> int | None:
    """Return the index of the turn whose call the result answers; None if there is no such turn.

    Providers may repeat call ids. So if the result names no turn, the last turn with this call id is used.
    """
    if message.turn_id is not None:
        index = find_turn(state, message.turn_id)
        if index is not None and _has_call(state.turn_chunks[index], message):
            return index
    return state.last_turn(lambda turn: _has_call(turn, message))


def _has_call(turn: Turn, message: ToolResultMessage) -> bool:
    return bool(turn.tools.places("id", message.tool_call_id))


def _status(stop_reason: StopReason) -> Status:
    if stop_reason == "error":
        return "failed"
    return "aborted" if stop_reason == "aborted" else "completed"


def _united(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


TURNS = projection("turns", version=5, forked=TurnsState())(_evolve)
"""The turns and loops of a session. For a fork, the state contains only the fork's own turns and loops."""
