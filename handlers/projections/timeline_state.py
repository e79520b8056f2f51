"""The state of `TIMELINE`: its classes, and the functions that find and change a turn's marks."""

from collections.abc import Callable, Mapping
from typing import Literal

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.base import Frozen
from lanebus.handlers.persistent_list import FlatList, PersistentList
from lanebus.handlers.projections.turns_state import TurnsState, changed

__all__ = (
    "CallMark",
    "CompactionMark",
    "LoopMark",
    "OpenDecision",
    "TimelineState",
    "ToolMark",
    "TurnMark",
    "WaitMark",
    "change_marks",
    "change_tool",
)


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
