"""Fold the turns and loops of a session: their prompts, tools, outcomes, times and usage.

Agent events say when a turn and its tools start and end. The LLM lane contains the answers. Imported history has no
events: in such a history, each assistant message and the tool results that follow are one turn.

The state contains positions of messages, never the text of messages. Times are seconds UTC by the server's clock, so
imported turns have the time of the import.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

from lanebus.bus.errors import MessageError
from lanebus.bus.messages import (
    AgentEnded,
    AgentEvent,
    AgentStarted,
    AssistantMessage,
    Cost,
    ExtensionMessage,
    Frozen,
    ParallelLoopsEnded,
    ParallelLoopsStarted,
    StopReason,
    ToolEnded,
    ToolOutcome,
    ToolResultMessage,
    ToolStarted,
    TurnEnded,
    TurnId,
    TurnStarted,
    Usage,
    UsageSettled,
    UserMessage,
    parse_event,
)
from lanebus.bus.wire import DecodeFailure, Envelope
from lanebus.handlers.context import FlatList, PersistentList
from lanebus.handlers.projections.definition import projection
from lanebus.handlers.projections.usage import Pending, added, settled, take_early, with_early

# The state of `TURNS`: its classes, and the functions that find and change a turn or loop.

TurnStatus = Literal["running", "completed", "failed", "aborted"]
Positions = tuple[int, ...]

F = TypeVar("F", bound=Frozen)


def fault_of(outcome: ToolOutcome | None) -> str:
    """Return in words how a tool call with an error ended, to show beside the tool's name."""
    return {"timedOut": "timed out", "unknown": "with unknown outcome"}.get(outcome or "", outcome or "failed")


class ToolRun(Frozen):
    """One tool call of a turn."""

    id: str
    name: str
    started: float | None = None
    ended: float | None = None
    attempts: int = 0
    """number of times the call was started. It is 2 or more if its outcome was unknown, such as after a crash"""
    is_error: bool | None = None
    """whether the call failed; None until the result is known"""
    outcome: ToolOutcome | None = None
    """how the call ended; None before the call's `ToolEnded`, and always None in logs of earlier versions"""
    result: int | None = None
    """position of the result"""
    child_loop: str | None = None
    """id of the loop that the tool ran, in this session or another session"""

    @property
    def fault(self) -> str:
        """The call's outcome in words, to show beside the tool's name; "" if the call completed or still runs."""
        return fault_of(self.outcome) if self.is_error else ""


class Turn(Frozen):
    """One model call with its tools."""

    turn_id: TurnId | None = None
    """id of the turn; None in imported history"""
    has_events: bool = False
    """True if events report the turn's start and end. Otherwise the times of the turn's messages are used"""
    trigger: str | None = None
    status: TurnStatus = "running"
    stop_reason: StopReason | None = None
    prompts: Positions = ()
    """positions of what the turn answers: new messages of users, or results of the previous turn's tools"""
    message: int | None = None
    """position of the assistant's message"""
    provider: str | None = None
    model: str | None = None
    tools: FlatList[ToolRun] = FlatList()
    """the turn's tool calls, in the order of the answer"""
    usage: Usage | None = None
    """usage of the turn's model call; None if no answer has reported a usage"""
    pending: Pending | None = None
    """the estimated part of the usage; None if no usage is estimated"""
    started: float
    """start of the turn, in seconds UTC by the server's clock"""
    ended: float | None = None
    """end of the turn, in seconds UTC by the server's clock; None while the turn runs. A turn ends after its
    last tool, so its duration includes waits for a person."""

    @property
    def loop_id(self) -> str | None:
        """Id of the turn's loop; None in imported history."""
        return None if self.turn_id is None else self.turn_id.loop_id

    @property
    def cost(self) -> Cost | None:
        """Cost in US dollars; None if unknown."""
        return None if self.usage is None else self.usage.cost

    @property
    def has_tool_calls(self) -> bool:
        """Whether the turn's answer called a tool or an event reports a tool run."""
        return bool(self.tools)

    @property
    def results(self) -> Positions:
        """Positions of the results of the turn's tools, in the order of the calls."""
        return tuple(run.result for run in self.tools if run.result is not None)


class Loop(Frozen):
    """One run of an agent in the session."""

    loop_id: str
    agent: str | None = None
    parent: str | None = None
    """id of the loop that this loop continues, or of the loop that called this loop as a tool"""
    continuation: str | None = None
    """how this loop continues its parent; None before this loop's `AgentStarted`"""
    group: tuple[str, ...] = ()
    """ids of the loops that run in parallel, including this loop; empty if this loop runs alone"""
    is_selected: bool | None = None
    """whether this loop's answer was selected from its group; None before `ParallelLoopsEnded`"""
    status: Literal["running", "completed", "failed", "aborted", "rejected"] = "running"
    stop_reason: StopReason | None = None
    rejection: str | None = None
    is_beside: bool = False
    """True if this loop runs as a tool of another loop or in parallel. Its start then does not end the other loops"""
    turns: int = 0
    """highest known turn index plus one"""
    said_usage: Usage | None = None
    """usage that this loop's `AgentEnded` reports"""
    started: float
    """start of the loop, in seconds UTC by the server's clock"""
    ended: float | None = None
    """end of the loop, in seconds UTC by the server's clock; None while the loop runs"""


class TurnsState(Frozen):
    """The turns and loops of a session, without the text of any message."""

    turn_chunks: PersistentList[Turn] = PersistentList()
    loop_chunks: PersistentList[Loop] = PersistentList()
    running: tuple[str, ...] = ()
    """ids of the loops that have not ended"""
    waiting: FlatList[int] = FlatList()
    """positions of user messages that no turn has answered"""
    parallel: tuple[str, ...] = ()
    """ids of the loops of the newest `ParallelLoopsStarted`"""
    early: Mapping[str, Usage] = {}
    """message position → final usage, from each `UsageSettled` that comes before its message in the log"""
    problems: int = 0
    """number of events and other entries that could not be decoded"""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, in the order in which they started."""
        return tuple(self.turn_chunks)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops, in the order in which they started."""
        return tuple(self.loop_chunks)

    def place(self, loop_id: str) -> int | None:
        """Return the index of a loop in `loops`, from 0; None if there is no such loop."""
        return next(iter(self.loop_chunks.places("loop_id", loop_id)), None)

    def turn(self, turn_id: TurnId) -> Turn | None:
        """Return the turn with this id; None if there is no such turn."""
        index = find_turn(self, turn_id)
        return None if index is None else self.turn_chunks[index]

    def last_turn(self, condition: Callable[[Turn], bool]) -> int | None:
        """Return the index of the last turn for which `condition` is true; None if there is no such turn."""
        last = len(self.turn_chunks) - 1
        return next((last - back for back, turn in enumerate(reversed(self.turn_chunks)) if condition(turn)), None)


def find_turn(state: TurnsState, turn_id: TurnId) -> int | None:
    """Return the index of the turn in `state.turns`, from 0; None if the turn is new."""
    loop = state.place(turn_id.loop_id)
    # Turn indexes only grow within a loop, so a new turn is recognised without a search of the other turns.
    if loop is None or turn_id.turn_index >= state.loop_chunks[loop].turns:
        return None
    return state.last_turn(lambda turn: turn.turn_id == turn_id)


def ensure_loop(state: TurnsState, loop_id: str, time: float) -> tuple[TurnsState, int]:
    """Add the loop if it is new. Return the state and the index of the loop.

    Args:
        state: the state to change.
        loop_id: the loop.
        time: start of a new loop, seconds UTC.
    """
    place = state.place(loop_id)
    if place is not None:
        return state, place
    place = len(state.loop_chunks)
    state = changed(
        state,
        loop_chunks=state.loop_chunks.appended(Loop(loop_id=loop_id, started=time)),
        running=(*state.running, loop_id),
    )
    return state, place


def ensure_turn(state: TurnsState, turn_id: TurnId, time: float) -> tuple[TurnsState, int]:
    """Add the turn and its loop if they are new. Return the state and the index of the turn.

    Args:
        state: the state to change.
        turn_id: the turn.
        time: start of a new turn or loop, seconds UTC.
    """
    index = find_turn(state, turn_id)
    if index is not None:
        return state, index
    state, place = ensure_loop(state, turn_id.loop_id, time)
    seen = max(state.loop_chunks[place].turns, turn_id.turn_index + 1)
    state = change_loop(state, place, turns=seen)
    turn = Turn(turn_id=turn_id, started=time)
    return changed(state, turn_chunks=state.turn_chunks.appended(turn)), len(state.turn_chunks)


def change_turn(state: TurnsState, index: int, **changes: object) -> TurnsState:
    """Return the state with `changes` set on one turn."""
    turn = changed(state.turn_chunks[index], **changes)
    return changed(state, turn_chunks=state.turn_chunks.replaced(index, turn))


def change_loop(state: TurnsState, place: int, **changes: object) -> TurnsState:
    """Return the state with `changes` set on one loop, and with `running` updated."""
    loop = changed(state.loop_chunks[place], **changes)
    running = tuple(loop_id for loop_id in state.running if loop_id != loop.loop_id)
    return changed(
        state,
        loop_chunks=state.loop_chunks.replaced(place, loop),
        running=(*running, loop.loop_id) if loop.status == "running" else running,
    )


def changed(value: F, **changes: object) -> F:
    """Return a copy of `value` with `changes` set.

    It does what `model_copy` does for a value without private or extra attributes, in a quarter of the time: a fold
    makes seven copies for each entry.
    """
    copy = object.__new__(type(value))
    _set(copy, "__dict__", value.__dict__ | changes)
    _set(copy, "__pydantic_fields_set__", value.__pydantic_fields_set__ | changes.keys())
    _set(copy, "__pydantic_extra__", None)
    _set(copy, "__pydantic_private__", None)
    return copy


_set = object.__setattr__
"""Sets an attribute of a frozen value."""


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


# Fold the events of the agent.


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


# Fold the messages of the LLM lane.


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


def _status(stop_reason: StopReason) -> TurnStatus:
    if stop_reason == "error":
        return "failed"
    return "aborted" if stop_reason == "aborted" else "completed"


def _united(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*one, *other}))


TURNS = projection("turns", version=5, forked=TurnsState())(_evolve)
"""The turns and loops of a session. For a fork, the state contains only the fork's own turns and loops."""


# The tree of a session's loops, and the usage of each loop. Pure functions of a `TurnsState`.


def find_loop(state: TurnsState, loop_id: str) -> Loop | None:
    """Return the loop with this id; None if there is no such loop."""
    place = state.place(loop_id)
    return None if place is None else state.loop_chunks[place]


def children(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops that continue `loop_id` or run as its tools, in the order in which they started."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent == loop_id)


def roots(state: TurnsState) -> tuple[str, ...]:
    """Return the ids of the loops that have no parent in this session."""
    return tuple(loop.loop_id for loop in state.loops if loop.parent is None or state.place(loop.parent) is None)


def chain_to(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops from a root to `loop_id`. Each loop is the parent of the next loop.

    Empty if the state has no loop with this id.

    If the log contains a cycle of parents, the chain has each loop of the cycle once.
    """
    chain: dict[str, None] = {}
    loop = find_loop(state, loop_id)
    while loop is not None and loop.loop_id not in chain:
        chain[loop.loop_id] = None
        loop = None if loop.parent is None else find_loop(state, loop.parent)
    return tuple(reversed(chain))


def siblings(state: TurnsState, loop_id: str) -> tuple[str, ...]:
    """Return the ids of the loops that ran in parallel with `loop_id`, and `loop_id` itself.

    Empty if the loop ran alone or is unknown.
    """
    loop = find_loop(state, loop_id)
    return () if loop is None else tuple(name for name in loop.group if state.place(name) is not None)


def loop_turns(state: TurnsState, loop_id: str) -> tuple[Turn, ...]:
    """Return the turns of a loop, in the order in which they started."""
    return tuple(turn for turn in state.turns if turn.loop_id == loop_id)


def loop_messages(state: TurnsState, loop_id: str) -> tuple[int, ...]:
    """Return the positions of a loop's prompts, answers and tool results, in ascending order.

    The loop need not have ended.
    """
    found: set[int] = set()
    for turn in loop_turns(state, loop_id):
        found.update(turn.prompts, turn.results, () if turn.message is None else (turn.message,))
    return tuple(sorted(found))


def loop_usage(state: TurnsState, loop_id: str) -> Usage:
    """Return the usage of a loop: the sum over its turns, or the usage in its `AgentEnded` if no turn reports any."""
    return usages(state).get(loop_id, Usage())


def total_usage(state: TurnsState) -> Usage:
    """Return the usage of the session: the sum over all loops and over the turns of imported history.

    The usage of the evaluation that selects among parallel loops is not included.
    """
    total = Usage()
    for usage in usages(state).values():
        total = total.combine(usage)
    return total


def usages(state: TurnsState) -> dict[str | None, Usage]:
    """Return the usage of each loop by loop id. The key None has the usage of imported history."""
    found: dict[str | None, Usage] = {}
    for turn in state.turns:
        if turn.usage is not None:
            found[turn.loop_id] = found.get(turn.loop_id, Usage()).combine(turn.usage)
    for loop in state.loops:
        if loop.said_usage is not None:
            found.setdefault(loop.loop_id, loop.said_usage)
    return found
