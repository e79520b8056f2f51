"""The turns of a session and the loops they belong to: what asked for them, what came of them, what they cost.

Agent events say when a turn and its tools begin and end; the LLM lane says what was answered. Where there are no
events, as in imported history, each assistant message is a turn with the results that follow it. No text of a message
is kept. All times are seconds UTC by the server's clock, so those of imported history are the import's.
"""

from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import TypeAdapter

from bus.envelope import Envelope, Unreadable
from bus.errors import MessageError
from bus.messages.base import Frozen
from bus.messages.events import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    ParallelLoopsStarted,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    parse_event,
)
from bus.messages.extension import ExtensionMessage
from bus.messages.message import AssistantMessage, StopReason, ToolResultMessage, UserMessage
from bus.messages.turn import TurnId
from bus.messages.usage import Cost, Usage
from handlers.projections.projection import Projection

__all__ = ("TURNS", "Loop", "Status", "ToolRun", "Turn", "TurnsState")

Status = Literal["running", "completed", "failed", "aborted"]
Positions = tuple[int, ...]

F = TypeVar("F", bound=Frozen)


class ToolRun(Frozen):
    """One tool call of a turn."""

    id: str
    name: str
    started: float | None = None
    ended: float | None = None
    is_error: bool | None = None
    """None until there is a result"""
    result: int | None = None
    """position of the result"""


class Turn(Frozen):
    """One model call with its tools."""

    turn_id: TurnId | None = None
    """None in imported history"""
    has_events: bool = False
    """its start and end were told by events; else they are read off its messages"""
    trigger: str | None = None
    status: Status = "running"
    stop_reason: StopReason | None = None
    prompts: Positions = ()
    """positions of what it answers"""
    message: int | None = None
    """position of the assistant's message"""
    provider: str | None = None
    model: str | None = None
    tools: tuple[ToolRun, ...] = ()
    usage: Usage | None = None
    """None: no call has reported any"""
    started: float
    ended: float | None = None

    @property
    def loop_id(self) -> str | None:
        return None if self.turn_id is None else self.turn_id.loop_id

    @property
    def cost(self) -> Cost | None:
        """US dollars; None is unknown."""
        return None if self.usage is None else self.usage.cost


class Loop(Frozen):
    """One run of an agent in the session."""

    loop_id: str
    agent: str | None = None
    parent: str | None = None
    """the loop that this one goes on from, or that called it as a tool"""
    status: Literal["running", "completed", "failed", "aborted", "rejected"] = "running"
    stop_reason: StopReason | None = None
    rejection: str | None = None
    is_beside: bool = False
    """it runs beside another loop, as a tool of it or in parallel, and so does not end it by beginning"""
    turns: int = 0
    """highest turn index seen, and one"""
    started: float
    ended: float | None = None


class TurnsState(Frozen):
    turns: tuple[Turn, ...] = ()
    """in the order they began"""
    loops: tuple[Loop, ...] = ()
    waiting: Positions = ()
    """positions of user messages that no turn has taken up"""
    parallel: tuple[str, ...] = ()
    """loops that were last announced to run side by side"""
    problems: int = 0
    """agent events and other entries that could not be read"""

    def turn(self, turn_id: TurnId) -> Turn | None:
        """The turn of that id."""
        index = _find_turn(self, turn_id)
        return None if index is None else self.turns[index]


def _evolve(state: TurnsState, envelope: Envelope) -> TurnsState:
    match envelope.message:
        case ExtensionMessage() as message:
            try:
                event = parse_event(message)
            except MessageError:
                return _copy(state, problems=state.problems + 1)
            return state if event is None else _on_event(state, event, envelope.time)
        case UserMessage(turn_id=None):
            return _copy(state, waiting=(*state.waiting, envelope.position))
        case UserMessage(turn_id=TurnId() as turn_id):
            state, index = _ensure_turn(state, turn_id, envelope.time)
            prompts = _united(state.turns[index].prompts, (envelope.position,))
            return _change_turn(state, index, prompts=prompts)
        case AssistantMessage() as message:
            return _on_answer(state, message, envelope)
        case ToolResultMessage() as message:
            return _on_result(state, message, envelope)
        case Unreadable():
            return _copy(state, problems=state.problems + 1)
        case _:
            return state


# --- what events tell ---------------------------------------------------------------------------------------------


def _on_event(state: TurnsState, event: AgentEvent, time: float) -> TurnsState:
    match event:
        case AgentStarted():
            return _start_loop(state, event, time)
        case AgentEnded():
            return _end_loop(state, event, time)
        case ParallelLoopsStarted():
            return _copy(state, parallel=event.loop_ids)
        case TurnStarted():
            return _start_turn(state, event, time)
        case TurnEnded():
            return _end_turn(state, event, time)
        case ToolStarted():
            return _on_tool(state, event, lambda run: run if run.started else _copy(run, started=time), time)
        case ToolEnded(is_error=is_error, position=position):

            def end(run: ToolRun) -> ToolRun:
                return _copy(run, ended=time, is_error=is_error, result=position or run.result)

            return _on_tool(state, event, end, time)
        case _:
            return state


def _start_loop(state: TurnsState, event: AgentStarted, time: float) -> TurnsState:
    index = _find_loop(state, event.loop_id)
    if index is not None and state.loops[index].agent is not None:
        # Told twice: a worker that took over a loop goes on with it, and what it did so far stays.
        return state
    running = [loop.loop_id for loop in state.loops if loop.status == "running" and loop.loop_id != event.loop_id]
    is_child = event.continuation == "initial" and event.parent_loop_id in running
    is_beside = is_child or event.loop_id in state.parallel
    if not is_beside:
        # Only one loop runs in a session. One that is still open when the next begins has died without a word.
        for loop_id in running:
            state = _abort_loop(state, loop_id, time)
    state, index = _ensure_loop(state, event.loop_id, time)
    return _change_loop(
        state, index, agent=event.agent, parent=event.parent_loop_id, is_beside=is_beside, status="running", ended=None
    )


def _end_loop(state: TurnsState, event: AgentEnded, time: float) -> TurnsState:
    state, index = _ensure_loop(state, event.loop_id, time)
    status = "rejected" if event.rejection is not None else _status(event.stop_reason)
    return _change_loop(
        _abort_turns(state, event.loop_id, time),
        index,
        status=status,
        stop_reason=event.stop_reason,
        rejection=event.rejection,
        ended=time,
    )


def _abort_loop(state: TurnsState, loop_id: str, time: float) -> TurnsState:
    index = _find_loop(state, loop_id)
    state = _abort_turns(state, loop_id, time)
    return state if index is None else _change_loop(state, index, status="aborted", ended=time)


def _abort_turns(state: TurnsState, loop_id: str, time: float) -> TurnsState:
    """What a loop left open when it ended was cut. Its messages and their usage stay."""
    if not any(turn.status == "running" and turn.loop_id == loop_id for turn in state.turns):
        return state
    turns = tuple(
        _copy(turn, status="aborted", ended=time) if turn.status == "running" and turn.loop_id == loop_id else turn
        for turn in state.turns
    )
    return _copy(state, turns=turns)


def _start_turn(state: TurnsState, event: TurnStarted, time: float) -> TurnsState:
    state, index = _ensure_turn(state, event.turn_id, time)
    turn = state.turns[index]
    waiting = tuple(position for position in state.waiting if position not in event.prompts)
    state = _copy(state, waiting=waiting)
    # A cut turn that is begun again, by whoever took over, runs again; one that was answered stays as it is.
    runs = turn.message is None
    return _change_turn(
        state,
        index,
        has_events=True,
        trigger=event.trigger,
        prompts=_united(turn.prompts, event.prompts),
        status="running" if runs else turn.status,
        ended=None if runs else turn.ended,
    )


def _end_turn(state: TurnsState, event: TurnEnded, time: float) -> TurnsState:
    state, index = _ensure_turn(state, event.turn_id, time)
    return _change_turn(
        state,
        index,
        has_events=True,
        status=_status(event.stop_reason),
        stop_reason=event.stop_reason,
        message=event.message or state.turns[index].message,
        ended=time,
    )


def _on_tool(
    state: TurnsState, event: ToolStarted | ToolEnded, change: Callable[[ToolRun], ToolRun], time: float
) -> TurnsState:
    state, index = _ensure_turn(state, event.turn_id, time)
    tools = state.turns[index].tools
    if not any(run.id == event.tool_call_id for run in tools):
        tools = (*tools, ToolRun(id=event.tool_call_id, name=event.tool_name))
    return _change_turn(
        state, index, tools=tuple(change(run) if run.id == event.tool_call_id else run for run in tools)
    )


# --- what messages tell -------------------------------------------------------------------------------------------


def _on_answer(state: TurnsState, message: AssistantMessage, envelope: Envelope) -> TurnsState:
    if message.turn_id is None:
        turn = Turn(prompts=state.waiting, started=envelope.time)
        state = _copy(state, turns=(*state.turns, turn), waiting=())
        index = len(state.turns) - 1
    else:
        state, index = _ensure_turn(state, message.turn_id, envelope.time)
        turn = state.turns[index]
    known = {run.id for run in turn.tools}
    called = (ToolRun(id=call.id, name=call.name) for call in message.tool_calls() if call.id not in known)
    usage = message.usage
    if usage is not None:
        usage = (turn.usage or Usage()).combine(usage)  # which leaves the provider's own object out
    state = _change_turn(
        state,
        index,
        message=envelope.position,
        provider=message.provider,
        model=message.model,
        tools=(*turn.tools, *called),
        usage=usage or turn.usage,
        stop_reason=message.stop_reason,
    )
    if turn.has_events:
        return state  # it ends when its loop says so
    status = _status(message.stop_reason)
    state = _change_turn(state, index, status=status, ended=envelope.time)
    loop = None if message.turn_id is None else _find_loop(state, message.turn_id.loop_id)
    if loop is None or state.loops[loop].agent is not None:
        return state
    return _change_loop(state, loop, status=status, stop_reason=message.stop_reason, ended=envelope.time)


def _on_result(state: TurnsState, message: ToolResultMessage, envelope: Envelope) -> TurnsState:
    index = _find_call(state, message)
    if index is None:
        return state
    turn = state.turns[index]
    tools = tuple(
        _copy(run, result=envelope.position, is_error=message.is_error, ended=run.ended or envelope.time)
        if run.id == message.tool_call_id
        else run
        for run in turn.tools
    )
    ended = turn.ended if turn.has_events else envelope.time
    return _change_turn(state, index, tools=tools, ended=ended)


def _find_call(state: TurnsState, message: ToolResultMessage) -> int | None:
    """The last turn that made the call: ids of calls are the provider's and may come again."""
    if message.turn_id is not None:
        index = _find_turn(state, message.turn_id)
        if index is not None and any(run.id == message.tool_call_id for run in state.turns[index].tools):
            return index
    for index in range(len(state.turns) - 1, -1, -1):
        if any(run.id == message.tool_call_id for run in state.turns[index].tools):
            return index
    return None


# --- finding and changing -----------------------------------------------------------------------------------------


def _status(stop_reason: StopReason) -> Status:
    if stop_reason == "error":
        return "failed"
    return "aborted" if stop_reason == "aborted" else "completed"


def _find_loop(state: TurnsState, loop_id: str) -> int | None:
    for index in range(len(state.loops) - 1, -1, -1):
        if state.loops[index].loop_id == loop_id:
            return index
    return None


def _find_turn(state: TurnsState, turn_id: TurnId) -> int | None:
    loop = _find_loop(state, turn_id.loop_id)
    # Indexes only grow in a loop, so a new turn is known as new without a look at all the others.
    if loop is None or turn_id.turn_index >= state.loops[loop].turns:
        return None
    for index in range(len(state.turns) - 1, -1, -1):
        if state.turns[index].turn_id == turn_id:
            return index
    return None


def _ensure_loop(state: TurnsState, loop_id: str, time: float) -> tuple[TurnsState, int]:
    index = _find_loop(state, loop_id)
    if index is None:
        loop = Loop(loop_id=loop_id, started=time)
        return _copy(state, loops=(*state.loops, loop)), len(state.loops)
    return state, index


def _ensure_turn(state: TurnsState, turn_id: TurnId, time: float) -> tuple[TurnsState, int]:
    index = _find_turn(state, turn_id)
    if index is not None:
        return state, index
    state, loop = _ensure_loop(state, turn_id.loop_id, time)
    state = _change_loop(state, loop, turns=max(state.loops[loop].turns, turn_id.turn_index + 1))
    turn = Turn(turn_id=turn_id, started=time)
    return _copy(state, turns=(*state.turns, turn)), len(state.turns)


def _change_turn(state: TurnsState, index: int, **changes: object) -> TurnsState:
    turns = state.turns
    changed = (*turns[:index], _copy(turns[index], **changes), *turns[index + 1 :])
    return _copy(state, turns=changed)


def _change_loop(state: TurnsState, index: int, **changes: object) -> TurnsState:
    loops = state.loops
    changed = (*loops[:index], _copy(loops[index], **changes), *loops[index + 1 :])
    return _copy(state, loops=changed)


def _copy(value: F, **changes: object) -> F:
    return value.model_copy(update=changes)


def _united(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


TURNS = Projection(name="turns", version=1, state=TypeAdapter(TurnsState), initial=TurnsState(), evolve=_evolve)
