"""The next decision in a session: what a worker that holds it does next. Pure, and the same for every worker."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.control import Abort, Compact
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.decide.command_outcome import find_interrupt, is_aborted, waits_for_turn
from lanebus.handlers.agent.decide.loop_state import SessionSnapshot
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.decide.turn_numbers import new_loop, next_turn
from lanebus.handlers.agent.limits import LoopLimits, Reached, loop_seconds, loop_usage
from lanebus.handlers.projections.agent_status import Command

__all__ = (
    "ABORTED",
    "SKIPPED",
    "AddSystemPrompt",
    "AdoptToolCalls",
    "CallModel",
    "CompactContext",
    "CompactionRule",
    "Decision",
    "FailToolCalls",
    "HandleCommand",
    "Idle",
    "LoopRules",
    "LoopStart",
    "RunTools",
    "StopAtLimit",
    "next_decision",
)

ABORTED = "Aborted by the user"
SKIPPED = "Skipped due to queued user message."
"""Source: seed 001"""


class LoopStart(NamedTuple):
    """How a new loop begins."""

    parent: str | None
    """the loop that it continues, or the previous loop"""
    continuation: Literal["initial", "default", "branch", "compaction"]


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing: all is done, or only a person can go on."""


@dataclass(frozen=True, slots=True)
class HandleCommand:
    """Answer the oldest command, in one append with its effect."""

    command: Command


@dataclass(frozen=True, slots=True)
class AddSystemPrompt:
    """Append the instructions to a session that has none."""

    text: str


@dataclass(frozen=True, slots=True)
class AdoptToolCalls:
    """Begin a loop with the open calls of another one."""

    answer: OpenAnswer
    """in the new loop's first turn"""
    start: LoopStart


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the open calls, as far as they may run."""

    answer: OpenAnswer


@dataclass(frozen=True, slots=True)
class FailToolCalls:
    """Answer the open calls with an error, which ends the turn."""

    answer: OpenAnswer
    text: str


@dataclass(frozen=True, slots=True)
class StopAtLimit:
    """End a loop that has reached a limit."""

    turn_id: TurnId
    """the loop's last turn"""
    reached: Reached
    read_up_to: int
    """everything up to here counts as answered"""
    deferred: tuple[int, ...] = ()
    """except for these positions"""


@dataclass(frozen=True, slots=True)
class CompactContext:
    """Replace the older part of the context by a summary."""

    turn_id: TurnId
    """next turn of the open loop; first turn of the loop that would begin, if none is open"""
    is_open: bool
    """a loop is open: it ends here, and the next loop continues it"""
    command: Command | None = None
    """the command that asked for it; None if the context is too long"""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Begin a turn, or begin it again, and ask the model."""

    turn_id: TurnId
    start: LoopStart | None
    """of a loop that begins with this turn"""
    trigger: Literal["user", "subAgent", "continuation", "branch"]
    results: tuple[Position, ...]
    prompts: tuple[Position, ...]
    fresh: tuple[Position, ...]
    """those of the prompts that no model was shown yet"""
    deferred: tuple[Position, ...]
    """messages that the model is not shown yet"""


Decision = (
    Idle
    | HandleCommand
    | AddSystemPrompt
    | AdoptToolCalls
    | RunTools
    | FailToolCalls
    | StopAtLimit
    | CompactContext
    | CallModel
)


class CompactionRule(Protocol):
    """Says when a context is to be compacted."""

    def wants(self, snapshot: SessionSnapshot, /) -> bool:
        """Whether the next request would be too long, or the last one was. Pure."""
        ...


class LoopRules(Protocol):
    """The settings of a loop that decisions depend on; see `AgentLoop`."""

    @property
    def system(self) -> str | None: ...
    @property
    def config(self) -> str: ...
    @property
    def limits(self) -> LoopLimits: ...
    @property
    def compaction(self) -> CompactionRule | None: ...


def next_decision(snapshot: SessionSnapshot, rules: LoopRules, now: float) -> Decision:
    """Return what a worker that holds the session does next.

    Args:
        now: seconds UTC; infinity once the time limit has cut a call. The server's clock dates the start of a loop, and
            an entry that is later than `now` counts in its place.
    """
    state = snapshot.loop_state
    if not state.has_work:
        return Idle()
    if state.commands:
        return _before_command(snapshot, rules)
    return _continue(snapshot, rules, now)


def _before_command(snapshot: SessionSnapshot, rules: LoopRules) -> Decision:
    """Handle the oldest command, unless a turn has to end first."""
    state = snapshot.loop_state
    command, answer = state.commands[0], state.answer
    if state.loop_id is not None and answer is not None and answer.open_calls:
        interrupt = find_interrupt(state)
        if interrupt is not None:
            return FailToolCalls(answer, ABORTED if isinstance(interrupt.control, Abort) else SKIPPED)
        if waits_for_turn(command.control, state):
            if not state.is_waiting:
                return RunTools(answer)
            if isinstance(command.control, Abort):  # the turn cannot end by itself
                return FailToolCalls(answer, ABORTED)
    # A compaction that a later abort ends at once is not begun: it would be begun again without end.
    if isinstance(command.control, Compact) and rules.compaction is not None and not is_aborted(state):
        return _compact(snapshot, rules, command)
    return HandleCommand(command)


def _continue(snapshot: SessionSnapshot, rules: LoopRules, now: float) -> Decision:
    """Continue the open loop, or begin one."""
    state = snapshot.loop_state
    answer = state.answer
    if rules.system and not snapshot.context.system:
        return AddSystemPrompt(rules.system)
    if answer is not None and answer.open_calls:
        if state.loop_id is None:
            return AdoptToolCalls(answer.adopted(_next_turn(snapshot, rules)), _loop_start(snapshot, rules))
        return FailToolCalls(answer, SKIPPED) if state.is_waiting else RunTools(answer)
    if state.loop_id is not None:
        reached = rules.limits.reached(
            turns=next_turn(snapshot, state.loop_id).turn_index,
            usage=loop_usage(snapshot.context, state.loop_id),
            seconds=loop_seconds(snapshot, now),
        )
        if reached is not None:
            return _stop(snapshot, state.loop_id, reached)
    if rules.compaction is not None and rules.compaction.wants(snapshot):
        return _compact(snapshot, rules, None)
    return _call_model(snapshot, rules)


def _next_turn(snapshot: SessionSnapshot, rules: LoopRules) -> TurnId:
    loop_id = snapshot.loop_state.loop_id
    if loop_id is not None:
        return next_turn(snapshot, loop_id)
    return TurnId(loop_id=new_loop(snapshot, rules.config), turn_index=0)


def _loop_start(snapshot: SessionSnapshot, rules: LoopRules) -> LoopStart:
    loop, answer = snapshot.status.loop, snapshot.loop_state.answer
    if loop is not None and loop.is_stopped:
        return LoopStart(loop.loop_id, "compaction" if loop.ended == "contextCompacted" else "default")
    if answer is not None:  # of the session that this one was forked from, or of a loop that the user went back to
        return LoopStart(answer.turn_id.loop_id, "branch")
    prefix, _, number = new_loop(snapshot, rules.config).rpartition(".")
    return LoopStart(None, "initial") if number == "1" else LoopStart(f"{prefix}.{int(number) - 1}", "default")


def _call_model(snapshot: SessionSnapshot, rules: LoopRules) -> CallModel:
    state, status = snapshot.loop_state, snapshot.status
    start = _loop_start(snapshot, rules) if state.loop_id is None else None
    results = () if state.answer is None else tuple(position for position, _ in state.answer.results)
    is_first = start is not None and status.loop is None
    by_user: Literal["user", "subAgent"] = "subAgent" if is_first and status.link is not None else "user"
    return CallModel(
        turn_id=_next_turn(snapshot, rules),
        start=start,
        trigger=by_user if state.prompts and not results else "continuation",
        results=results,
        prompts=state.prompts,
        fresh=tuple(position for position in state.prompts if position > state.visible_up_to),
        deferred=state.deferred,
    )


def _compact(snapshot: SessionSnapshot, rules: LoopRules, command: Command | None) -> CompactContext:
    return CompactContext(_next_turn(snapshot, rules), snapshot.loop_state.loop_id is not None, command)


def _stop(snapshot: SessionSnapshot, loop_id: str, reached: Reached) -> StopAtLimit:
    """Stop the loop. What a model was shown counts as answered; if none was asked in this loop, everything does."""
    state, turn_id = snapshot.loop_state, next_turn(snapshot, loop_id)
    if turn_id.turn_index == 0:
        return StopAtLimit(turn_id, reached, snapshot.context.position, state.deferred)
    last = turn_id.model_copy(update={"turn_index": turn_id.turn_index - 1})
    return StopAtLimit(last, reached, state.visible_up_to, state.deferred)
