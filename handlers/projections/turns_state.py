"""The state of the turns: what is known of each turn and loop, and how it is found and changed."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

from lanebus.bus.messages.base import Frozen
from lanebus.bus.messages.message import StopReason
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.messages.usage import Cost, Usage
from lanebus.handlers.persistent_list import PersistentList
from lanebus.handlers.projections.estimates import Pending

__all__ = (
    "Loop",
    "Status",
    "ToolRun",
    "Turn",
    "TurnsState",
    "change_loop",
    "change_turn",
    "changed",
    "ensure_loop",
    "ensure_turn",
    "find_turn",
)

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
    child_loop: str | None = None
    """the loop that it ran, of this session or of another one"""


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
    pending: Pending | None = None
    """what of the usage is estimated; None where nothing is"""
    started: float
    ended: float | None = None

    @property
    def loop_id(self) -> str | None:
        """The loop it belongs to; None in imported history."""
        return None if self.turn_id is None else self.turn_id.loop_id

    @property
    def cost(self) -> Cost | None:
        """US dollars; None is unknown."""
        return None if self.usage is None else self.usage.cost

    @property
    def has_tool_calls(self) -> bool:
        """Its answer called a tool, or an event says that one ran."""
        return bool(self.tools)

    @property
    def results(self) -> Positions:
        """Positions of its tools' results, in the order of the calls."""
        return tuple(run.result for run in self.tools if run.result is not None)


class Loop(Frozen):
    """One run of an agent in the session."""

    loop_id: str
    agent: str | None = None
    parent: str | None = None
    """the loop that this one goes on from, or that called it as a tool"""
    continuation: str | None = None
    """how it goes on from another; None until it is told"""
    group: tuple[str, ...] = ()
    """the loops that were announced to run side by side with it, itself among them"""
    is_selected: bool | None = None
    """of such a group, whether its answer was taken; None until that is told"""
    status: Literal["running", "completed", "failed", "aborted", "rejected"] = "running"
    stop_reason: StopReason | None = None
    rejection: str | None = None
    is_beside: bool = False
    """it runs beside another loop, as a tool of it or in parallel, and so does not end it by beginning"""
    turns: int = 0
    """highest turn index seen, and one"""
    said_usage: Usage | None = None
    """the sum that its end repeats"""
    started: float
    ended: float | None = None


class TurnsState(Frozen):
    """All turns and loops of a session, without a word of what was said."""

    turn_chunks: PersistentList[Turn] = PersistentList()
    loop_chunks: PersistentList[Loop] = PersistentList()
    loop_places: Mapping[str, int] = {}
    """loop id -> which of the loops, from 0"""
    running: tuple[str, ...] = ()
    """ids of the loops that have not ended"""
    waiting: Positions = ()
    """positions of user messages that no turn has taken up"""
    parallel: tuple[str, ...] = ()
    """loops that were last announced to run side by side"""
    early: Mapping[str, Usage] = {}
    """settlements of usage whose messages have not come"""
    problems: int = 0
    """agent events and other entries that could not be read"""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns, in the order they began."""
        return tuple(self.turn_chunks)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """All loops, in the order they began."""
        return tuple(self.loop_chunks)

    def turn(self, turn_id: TurnId) -> Turn | None:
        """The turn of that id."""
        index = find_turn(self, turn_id)
        return None if index is None else self.turn_chunks[index]

    def last_turn(self, condition: Callable[[Turn], bool]) -> int | None:
        """Return the index of the last turn that meets the condition; None if none does."""
        last = len(self.turn_chunks) - 1
        return next((last - back for back, turn in enumerate(reversed(self.turn_chunks)) if condition(turn)), None)


def find_turn(state: TurnsState, turn_id: TurnId) -> int | None:
    """Which of the turns it is, from 0; None if it is not known yet."""
    loop = state.loop_places.get(turn_id.loop_id)
    # Indexes only grow in a loop, so a new turn is known as new without a look at all the others.
    if loop is None or turn_id.turn_index >= state.loop_chunks[loop].turns:
        return None
    return state.last_turn(lambda turn: turn.turn_id == turn_id)


def ensure_loop(state: TurnsState, loop_id: str, time: float) -> tuple[TurnsState, int]:
    """The state with that loop in it, and which of the loops it is. `time`: seconds UTC, its start if it is new."""
    place = state.loop_places.get(loop_id)
    if place is not None:
        return state, place
    place = len(state.loop_places)
    state = changed(
        state,
        loop_chunks=state.loop_chunks.appended(Loop(loop_id=loop_id, started=time)),
        loop_places={**state.loop_places, loop_id: place},
        running=(*state.running, loop_id),
    )
    return state, place


def ensure_turn(state: TurnsState, turn_id: TurnId, time: float) -> tuple[TurnsState, int]:
    """The same for a turn and its loop."""
    index = find_turn(state, turn_id)
    if index is not None:
        return state, index
    state, place = ensure_loop(state, turn_id.loop_id, time)
    seen = max(state.loop_chunks[place].turns, turn_id.turn_index + 1)
    state = change_loop(state, place, turns=seen)
    turn = Turn(turn_id=turn_id, started=time)
    return changed(state, turn_chunks=state.turn_chunks.appended(turn)), len(state.turn_chunks)


def change_turn(state: TurnsState, index: int, **changes: object) -> TurnsState:
    """The state with other fields in one turn."""
    turn = changed(state.turn_chunks[index], **changes)
    return changed(state, turn_chunks=state.turn_chunks.replaced(index, turn))


def change_loop(state: TurnsState, place: int, **changes: object) -> TurnsState:
    """The state with other fields in one loop."""
    loop = changed(state.loop_chunks[place], **changes)
    running = tuple(loop_id for loop_id in state.running if loop_id != loop.loop_id)
    return changed(
        state,
        loop_chunks=state.loop_chunks.replaced(place, loop),
        running=(*running, loop.loop_id) if loop.status == "running" else running,
    )


def changed(value: F, **changes: object) -> F:
    """The value with other fields."""
    return value.model_copy(update=changes)
