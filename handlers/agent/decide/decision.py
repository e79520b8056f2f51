"""The next decision in a session. Pure: the same log gives every worker the same decision."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from lanebus.bus.messages.context_entry import Position
from lanebus.bus.messages.control import Abort, Compact
from lanebus.bus.messages.turn import TurnId
from lanebus.handlers.agent.decide.command_outcome import find_interrupt, is_aborted, waits_for_turn
from lanebus.handlers.agent.decide.imported_answer import ImportedAnswer, imported_answer
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
    "CloseImportedCalls",
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
    "model_call",
    "next_decision",
    "stop_loop_at",
)

ABORTED = "Aborted by the user"
SKIPPED = "Skipped due to queued user message."
"""result text of a tool call that was skipped before it started. Source: the `two-lane-agent` system"""


class LoopStart(NamedTuple):
    """The relation of a new loop to the previous loop."""

    parent: str | None
    """id of the loop that the new loop continues, or else id of the previous loop; None for the first loop"""
    continuation: Literal["initial", "default", "branch", "compaction"]


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing: everything is answered, or a person has to act first."""


@dataclass(frozen=True, slots=True)
class HandleCommand:
    """Answer the oldest command and apply it, in one append."""

    command: Command


@dataclass(frozen=True, slots=True)
class AddSystemPrompt:
    """Append the system prompt to a session that has none."""

    text: str


@dataclass(frozen=True, slots=True)
class AdoptToolCalls:
    """Begin a loop that continues the open tool calls of an earlier loop."""

    answer: OpenAnswer
    """the answer with the open calls, moved to the new loop's first turn"""
    start: LoopStart


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the open calls of an answer. `tool_decision` decides about each call."""

    answer: OpenAnswer


@dataclass(frozen=True, slots=True)
class FailToolCalls:
    """Record an error as the result of each open call, which ends the turn."""

    answer: OpenAnswer
    text: str
    """result of the calls that were not started; the outcome of the others is unknown"""


@dataclass(frozen=True, slots=True)
class CloseImportedCalls:
    """Append a result for each open call of an imported answer, which says that the call was not run."""

    answer: ImportedAnswer


@dataclass(frozen=True, slots=True)
class StopAtLimit:
    """End a loop that has reached a limit."""

    turn_id: TurnId
    """the loop's last turn"""
    reached: Reached
    read_up_to: int
    """messages up to this position are answered, except for `deferred`"""
    deferred: tuple[int, ...] = ()
    """positions of messages up to `read_up_to` that are not answered"""


@dataclass(frozen=True, slots=True)
class CompactContext:
    """Replace the older part of the context by a summary."""

    turn_id: TurnId
    """next turn of the open loop; if none is open, first turn of the next loop"""
    is_open: bool
    """whether a loop is open. If so, the compaction ends this loop, and the next loop continues it"""
    command: Command | None = None
    """the command to answer; None if the length of the context started the compaction"""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Begin a turn, or begin an interrupted turn again, and call the model."""

    turn_id: TurnId
    start: LoopStart | None
    """how the new loop begins; None if the turn belongs to the open loop"""
    trigger: Literal["user", "subAgent", "continuation", "branch"]
    results: tuple[Position, ...]
    """positions of the tool results that the turn continues"""
    prompts: tuple[Position, ...]
    """positions of the user messages that the turn answers"""
    fresh: tuple[Position, ...]
    """the part of `prompts` that no model was shown yet"""
    deferred: tuple[Position, ...]
    """positions of messages that the model is not shown yet"""


Decision = (
    Idle
    | HandleCommand
    | AddSystemPrompt
    | AdoptToolCalls
    | RunTools
    | FailToolCalls
    | CloseImportedCalls
    | StopAtLimit
    | CompactContext
    | CallModel
)


class CompactionRule(Protocol):
    """Decides when a context is compacted."""

    def wants(self, snapshot: SessionSnapshot, /) -> bool:
        """Return whether the next request would be too long, or the last request was too long. Pure."""
        ...


class LoopRules(Protocol):
    """The arguments of `AgentLoop` that decisions depend on."""

    @property
    def system(self) -> str | None: ...
    @property
    def config(self) -> str: ...
    @property
    def limits(self) -> LoopLimits: ...
    @property
    def compaction(self) -> CompactionRule | None: ...


def next_decision(snapshot: SessionSnapshot, rules: LoopRules, now: float) -> Decision:
    """Return the next step of the worker that holds the session's lease.

    Args:
        now: the present time in seconds UTC, for the time limit. If the newest entry has a later time, that time is
            used, because the local clock may be slow. Pass infinity after the time limit has cut a call.
    """
    state = snapshot.loop_state
    if not state.has_work:
        return Idle()
    if state.commands:
        return _before_command(snapshot, rules)
    return _continue(snapshot, rules, now)


def _before_command(snapshot: SessionSnapshot, rules: LoopRules) -> Decision:
    """Handle the oldest command, unless the current turn has to end first."""
    state = snapshot.loop_state
    command, answer = state.commands[0], state.answer
    if state.loop_id is not None and answer is not None and answer.open_calls:
        interrupt = find_interrupt(state)
        if interrupt is not None:
            return FailToolCalls(answer, ABORTED if isinstance(interrupt.control, Abort) else SKIPPED)
        if waits_for_turn(command.control, state):
            if not state.is_waiting:
                return RunTools(answer)
            if isinstance(command.control, Abort):  # the turn's calls wait for a person, so the turn cannot end
                return FailToolCalls(answer, ABORTED)
    # If a later abort would end the compaction at once, do not begin it: the compaction would begin again forever.
    if isinstance(command.control, Compact) and rules.compaction is not None and not is_aborted(state):
        return CompactContext(_next_turn(snapshot, rules), state.loop_id is not None, command)
    return HandleCommand(command)


def _continue(snapshot: SessionSnapshot, rules: LoopRules, now: float) -> Decision:
    """Continue the open loop or begin a new one."""
    state = snapshot.loop_state
    answer = state.answer
    if rules.system and not snapshot.context.system:
        return AddSystemPrompt(rules.system)
    if answer is not None and answer.open_calls:
        if state.loop_id is None:
            return AdoptToolCalls(answer.adopted(_next_turn(snapshot, rules)), _loop_start(snapshot, rules))
        return FailToolCalls(answer, SKIPPED) if state.is_waiting else RunTools(answer)
    if (imported := imported_answer(snapshot.context)) is not None:
        return CloseImportedCalls(imported)
    if state.loop_id is not None:
        turn_id = next_turn(snapshot, state.loop_id)
        usage, seconds = loop_usage(snapshot.context, state.loop_id), loop_seconds(snapshot, now)
        reached = rules.limits.reached(turns=turn_id.turn_index, usage=usage, seconds=seconds)
        if reached is not None:
            return stop_loop_at(snapshot, turn_id, reached)
    if rules.compaction is not None and rules.compaction.wants(snapshot):
        return CompactContext(_next_turn(snapshot, rules), state.loop_id is not None)
    return model_call(snapshot, rules)


def _next_turn(snapshot: SessionSnapshot, rules: LoopRules) -> TurnId:
    loop_id = snapshot.loop_state.loop_id
    if loop_id is not None:
        return next_turn(snapshot, loop_id)
    return TurnId(loop_id=new_loop(snapshot, rules.config), turn_index=0)


def _loop_start(snapshot: SessionSnapshot, rules: LoopRules) -> LoopStart:
    loop, answer = snapshot.status.loop, snapshot.loop_state.answer
    if loop is not None and loop.is_stopped:
        return LoopStart(loop.loop_id, "compaction" if loop.ended == "contextCompacted" else "default")
    if answer is not None:  # a fork continues its parent, or the user went back to an earlier loop
        return LoopStart(answer.turn_id.loop_id, "branch")
    prefix, _, number = new_loop(snapshot, rules.config).rpartition(".")
    return LoopStart(None, "initial") if number == "1" else LoopStart(f"{prefix}.{int(number) - 1}", "default")


def model_call(snapshot: SessionSnapshot, rules: LoopRules) -> CallModel:
    """Return the next model call, whether or not there is work. If no loop is open, a new loop begins with this
    call."""
    state, status = snapshot.loop_state, snapshot.status
    start = _loop_start(snapshot, rules) if state.loop_id is None else None
    results = () if state.answer is None else tuple(position for position, _ in state.answer.results)
    is_first = start is not None and status.loop is None
    from_prompt: Literal["user", "subAgent"] = "subAgent" if is_first and status.link is not None else "user"
    return CallModel(
        turn_id=_next_turn(snapshot, rules),
        start=start,
        trigger=from_prompt if state.prompts and not results else "continuation",
        results=results,
        prompts=state.prompts,
        fresh=tuple(position for position in state.prompts if position > state.visible_up_to),
        deferred=state.deferred,
    )


def stop_loop_at(snapshot: SessionSnapshot, turn_id: TurnId, reached: Reached) -> StopAtLimit:
    """Return the step that stops an open loop.

    Messages that a model was shown count as answered. If the loop has called no model, all messages count as answered.
    """
    state = snapshot.loop_state
    if turn_id.turn_index == 0:
        return StopAtLimit(turn_id, reached, snapshot.context.position, state.deferred)
    last = turn_id.model_copy(update={"turn_index": turn_id.turn_index - 1})
    return StopAtLimit(last, reached, state.visible_up_to, state.deferred)
