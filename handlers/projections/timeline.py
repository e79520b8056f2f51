"""Fold the timeline of a session: when each loop, turn, model call, tool call and wait for a person began and ended.

The state has the `TURNS` of the session, and the positions and times that `TURNS` leaves out, but no text of messages.
Times are seconds UTC by the server's clock. Imported entries have the times of their authors, if they have any, so an
imported session does not look as if it had happened during the import. The time between two of them is not that of a
model call: only a recorded start tells how long a call took.

The log does not say when the first piece of an answer arrived: pieces are live deltas, which are not kept.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    Approve,
    AssistantMessage,
    CompactionEnded,
    CompactionFailed,
    CompactionStarted,
    ControlAnswered,
    Deny,
    ExtensionMessage,
    Frozen,
    LlmMessage,
    MessageStarted,
    SessionLinked,
    StopReason,
    ToolEnded,
    ToolStarted,
    ToolWaiting,
    TurnEnded,
    TurnId,
    parse_control,
    parse_event,
)
from lanebus.bus.wire import Envelope
from lanebus.handlers.context import FlatList, PersistentList
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.turns import TURNS, TurnsState, changed, find_turn

# The state of `TIMELINE`: its classes, and the functions that find and change a turn's marks.


class CallMark(Frozen):
    """One call of the model. A turn has several if its worker was lost and another one called the model again."""

    position: int
    """position of the call's start; of its answer if the log has no start"""
    started: float | None = None
    """None if nobody recorded the start, as in imported history: the call's duration is unknown"""
    ended: float | None = None
    """when the answer was recorded, or the call was repeated; None while the call runs"""
    answer: int | None = None
    """position of the answer; None while the call runs, and for a call that was lost"""
    stop_reason: StopReason | None = None
    message_id: str | None = None


class WaitMark(Frozen):
    """The time that one tool call waited for a person."""

    position: int
    """position of the question"""
    since: float
    why: Literal["approval", "unknown"]
    until: float | None = None
    """when the wait ended; None while the call waits"""
    decision: Literal["approve", "deny"] | None = None
    """what the person decided; None without a decision, such as after an abort"""
    command: int | None = None
    """position of the command that decided"""
    by: str | None = None


class ToolMark(Frozen):
    """Further facts of a tool call, beside its `ToolRun`: positions, waits, and a sub-agent's session."""

    id: str
    position: int | None = None
    """position of the first start; None if the call did not start"""
    ended_at: int | None = None
    """position of the end"""
    waits: tuple[WaitMark, ...] = ()
    child: str | None = None
    """id of the session that the call created"""
    child_agent: str | None = None


class TurnMark(Frozen):
    """Further facts of a turn, beside its `Turn`: positions and calls."""

    position: int
    """position of the turn's first entry"""
    last: int
    """position of the turn's last entry so far"""
    entries: int = 0
    """number of entries that name the turn"""
    ended_at: int | None = None
    """position of the turn's end"""
    calls: tuple[CallMark, ...] = ()
    tools: FlatList[ToolMark] = FlatList()


class LoopMark(Frozen):
    """Positions of a loop's first entry and of its end."""

    position: int
    ended_at: int | None = None


class CompactionMark(Frozen):
    """A model call that wrote a summary of the context."""

    loop_id: str
    position: int
    started: float
    ended: float | None = None
    ended_at: int | None = None
    status: Literal["running", "completed", "failed"] = "running"
    tokens_before: int | None = None
    tokens_after: int | None = None


class OpenDecision(Frozen):
    """An approval or denial that no worker has answered yet."""

    decision: Literal["approve", "deny"]
    tool_call_id: str
    by: str | None = None


class TimelineState(Frozen):
    """The turns of a session, and for each of them, at the same index, its marks."""

    turns: TurnsState = TurnsState()
    marks: PersistentList[TurnMark] = PersistentList()
    loops: PersistentList[LoopMark] = PersistentList()
    """at the index of the loop in `turns`"""
    compactions: PersistentList[CompactionMark] = PersistentList()
    decisions: Mapping[str, OpenDecision] = {}
    """position of the command → the command. The oldest is dropped first"""


def change_marks(state: TimelineState, index: int, **changes: object) -> TimelineState:
    """Return the state with `changes` set on the marks of one turn."""
    mark = changed(state.marks[index], **changes)
    return changed(state, marks=state.marks.replaced(index, mark))


def change_tool(
    state: TimelineState, index: int, call_id: str, change: Callable[[ToolMark], ToolMark]
) -> TimelineState:
    """Return the state with one tool call of a turn changed. An unknown call is added first.

    Args:
        state: the state to change.
        index: index of the turn.
        call_id: the call.
        change: returns the changed marks of the call.
    """
    tools = state.marks[index].tools
    if not tools.places("id", call_id):
        tools = tools.appended(ToolMark(id=call_id))
    (place,) = tools.places("id", call_id)
    return change_marks(state, index, tools=tools.replaced(place, change(tools[place])))


_DECISIONS_KEPT = 256


def _evolve(state: TimelineState, envelope: Envelope) -> TimelineState:
    own = _in_own_time(envelope)
    turns = TURNS.evolve(state.turns, own)
    if turns is not state.turns:
        state = _grown(changed(state, turns=turns), own.position)
    match own.message:
        case AssistantMessage() as message:
            state = _on_answer(state, message, own)
        case ExtensionMessage() as message if message.is_control:
            state = _on_command(state, message, own)
        case ExtensionMessage() as message:
            event = _event(message)
            state = state if event is None else _on_event(state, event, own)
        case LlmMessage(turn_id=TurnId() as turn_id):
            state = _touched(state, turn_id, own.position)
        case _:
            pass
    return state


def _in_own_time(envelope: Envelope) -> Envelope:
    """Return an imported entry with the time of its author, if it has one. Other entries are returned as they are."""
    if not envelope.is_imported:
        return envelope
    moment: object = None
    match envelope.message:
        case LlmMessage(timestamp=timestamp):
            moment = timestamp
        case ExtensionMessage(data=dict() as data):
            moment = data.get("timestamp")
        case _:
            pass
    is_time = isinstance(moment, int) and not isinstance(moment, bool) and moment > 0
    return envelope._replace(time=moment / 1000) if is_time else envelope  # type: ignore[operator]  # checked above


def _grown(state: TimelineState, position: int) -> TimelineState:
    """Add marks for the turns and loops that `TURNS` has just added."""
    turns, loops = state.turns.turn_chunks, state.turns.loop_chunks
    if len(turns) > len(state.marks):
        new = (TurnMark(position=position, last=position) for _ in range(len(turns) - len(state.marks)))
        state = changed(state, marks=state.marks.appended(*new))
    if len(loops) > len(state.loops):
        begun = (LoopMark(position=position) for _ in range(len(loops) - len(state.loops)))
        state = changed(state, loops=state.loops.appended(*begun))
    return state


def _touched(state: TimelineState, turn_id: TurnId, position: int) -> TimelineState:
    """Count one more entry of a turn."""
    index = find_turn(state.turns, turn_id)
    return state if index is None else _counted(state, index, position)


def _counted(state: TimelineState, index: int, position: int) -> TimelineState:
    return change_marks(state, index, last=position, entries=state.marks[index].entries + 1)


def _on_answer(state: TimelineState, message: AssistantMessage, envelope: Envelope) -> TimelineState:
    index = len(state.marks) - 1 if message.turn_id is None else find_turn(state.turns, message.turn_id)
    if index is None:
        return state
    calls = state.marks[index].calls
    ends = {"ended": envelope.time, "answer": envelope.position, "stop_reason": message.stop_reason}
    if calls and calls[-1].answer is None:
        calls = (*calls[:-1], changed(calls[-1], **ends))
    else:
        known = CallMark(position=envelope.position, message_id=message.id)
        calls = (*calls, changed(known, **ends))
    return change_marks(_counted(state, index, envelope.position), index, calls=calls)


def _on_command(state: TimelineState, message: ExtensionMessage, envelope: Envelope) -> TimelineState:
    try:
        control = parse_control(message)
    except MessageError:
        return state
    if envelope.is_imported or not isinstance(control, Approve | Deny):
        return state
    state = _touched(state, control.turn_id, envelope.position)
    decision = OpenDecision(
        decision="approve" if isinstance(control, Approve) else "deny",
        tool_call_id=control.tool_call_id,
        by=control.by,
    )
    decisions = {**state.decisions, str(envelope.position): decision}
    if len(decisions) > _DECISIONS_KEPT:
        del decisions[next(iter(decisions))]
    return changed(state, decisions=decisions)


def _on_event(state: TimelineState, event: AgentEvent, envelope: Envelope) -> TimelineState:
    position, time = envelope.position, envelope.time
    match event:
        case AgentEnded(loop_id=loop_id):
            place = state.turns.place(loop_id)
            if place is None:
                return state
            return changed(state, loops=state.loops.replaced(place, changed(state.loops[place], ended_at=position)))
        case CompactionStarted(loop_id=loop_id, estimated_tokens=tokens):
            mark = CompactionMark(loop_id=loop_id, position=position, started=time, tokens_before=tokens)
            return changed(state, compactions=state.compactions.appended(mark))
        case CompactionEnded():
            return _end_compaction(state, envelope, status="completed", tokens_after=event.estimated_tokens_after)
        case CompactionFailed():
            return _end_compaction(state, envelope, status="failed")
        case ControlAnswered():
            return _decided(state, event, time)
        case SessionLinked() if event.parent != envelope.session:
            return state  # the link to the session's own parent names a turn of the parent
        case _:
            turn_id: object = getattr(event, "turn_id", None)
            index = find_turn(state.turns, turn_id) if isinstance(turn_id, TurnId) else None
            return state if index is None else _in_turn(_counted(state, index, position), index, event, envelope)


def _in_turn(state: TimelineState, index: int, event: AgentEvent, envelope: Envelope) -> TimelineState:
    position, time = envelope.position, envelope.time
    match event:
        case MessageStarted(message_id=message_id):
            calls = state.marks[index].calls
            if calls and calls[-1].answer is None:  # its worker was lost, and this one calls the model again
                calls = (*calls[:-1], changed(calls[-1], ended=calls[-1].ended or time))
            call = CallMark(position=position, started=time, message_id=message_id)
            return change_marks(state, index, calls=(*calls, call))
        case TurnEnded():
            return change_marks(state, index, ended_at=position)
        case ToolStarted(tool_call_id=call_id):

            def start(tool: ToolMark) -> ToolMark:
                return changed(_over(tool, time), position=tool.position or position)

            return change_tool(state, index, call_id, start)
        case ToolEnded(tool_call_id=call_id):
            return change_tool(state, index, call_id, lambda tool: changed(_over(tool, time), ended_at=position))
        case ToolWaiting(tool_call_id=call_id, why=why):
            wait = WaitMark(position=position, since=time, why=why)

            def ask(tool: ToolMark) -> ToolMark:
                return changed(tool, waits=(*_over(tool, time).waits, wait))

            return change_tool(state, index, call_id, ask)
        case SessionLinked(tool_call_id=call_id, child=child, agent=agent):
            return change_tool(state, index, call_id, lambda tool: changed(tool, child=child, child_agent=agent))
        case _:
            return state


def _over(tool: ToolMark, time: float, **changes: object) -> ToolMark:
    """Return the call with its last wait ended, if it still waits."""
    if not tool.waits or tool.waits[-1].until is not None:
        return tool
    return changed(tool, waits=(*tool.waits[:-1], changed(tool.waits[-1], until=time, **changes)))


def _decided(state: TimelineState, event: ControlAnswered, time: float) -> TimelineState:
    decision = state.decisions.get(str(event.control))
    if decision is None:
        return state
    rest = {position: each for position, each in state.decisions.items() if position != str(event.control)}
    state = changed(state, decisions=rest)
    if event.outcome != "applied":
        return state
    index = _waiting_turn(state, decision.tool_call_id)
    if index is None:
        return state
    return change_tool(
        state,
        index,
        decision.tool_call_id,
        lambda tool: _over(tool, time, decision=decision.decision, command=event.control, by=decision.by),
    )


def _waiting_turn(state: TimelineState, call_id: str) -> int | None:
    """Return the index of the newest turn in which this call waits; None if it waits in none."""
    for back, mark in enumerate(reversed(state.marks)):
        tools = mark.tools
        waits = (tools[place].waits for place in tools.places("id", call_id))
        if any(each and each[-1].until is None for each in waits):
            return len(state.marks) - 1 - back
    return None


def _end_compaction(state: TimelineState, envelope: Envelope, **changes: object) -> TimelineState:
    last = len(state.compactions) - 1
    if last < 0 or state.compactions[last].ended is not None:
        return state
    mark = changed(state.compactions[last], ended=envelope.time, ended_at=envelope.position, **changes)
    return changed(state, compactions=state.compactions.replaced(last, mark))


def _event(message: ExtensionMessage) -> AgentEvent | None:
    try:
        return parse_event(message)
    except MessageError:
        return None


TIMELINE = projection("timeline", version=4, forked=TimelineState())(_evolve)
"""The timeline of a session. For a fork, the state contains only the fork's own turns and loops."""
