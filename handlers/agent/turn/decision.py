"""The next decision in a session, within a loop's limits. Pure: the same log gives every worker the same decision."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple, Protocol

from lanebus.bus import RetryPolicy
from lanebus.bus.errors import MessageError, require_count, require_instance, require_seconds
from lanebus.bus.messages import (
    Abort,
    Approve,
    AssistantMessage,
    Compact,
    Control,
    Deny,
    Handoff,
    Pause,
    Position,
    Resume,
    Steer,
    StopReason,
    ToolCallBlock,
    TurnId,
    Usage,
)
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent.models.model import failure_of
from lanebus.handlers.agent.turn.loop_state import (
    AGAIN,
    LoopState,
    OpenAnswer,
    SessionSnapshot,
    is_cut,
    new_loop,
    next_turn,
)
from lanebus.handlers.context import Context, find, is_prompt
from lanebus.handlers.projections import Command

# The limits of one loop, and the loop's usage so far. Pure functions.


class Reached(NamedTuple):
    """A limit that a loop has reached."""

    stop_reason: StopReason
    text: str
    """shown to the model and the user as `[Agent stopped: …]`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    """Limits of one loop. None means no limit.

    Limits are checked before each model call, so the last call may exceed them. The time limit also cuts the running
    call, see `seconds`.

    Source: the `two-lane-agent` system, which has the same limits and texts.
    """

    turns: int | None = 20
    """model calls, including failed ones"""
    tokens: int | None = None
    """input, output and cached tokens together"""
    cost: Decimal | None = None
    """US dollars. A call of unknown cost counts as 0. If `cost` is set, `AgentLoop` raises `CostUnknown` for a model
    that implements `Pricing` but does not know its prices"""
    seconds: float | None = None
    """Seconds from the beginning of the loop, by the server's clock. The time in which a call waits for a person is
    included.

    At the limit, a running model call is stopped; its text so far is recorded with the reason and the cost. Running
    tools are stopped too. The limit does not stop:

    - a tool whose `timeout` is None, such as a sub-agent, or a tool that runs at the same time as such a tool;
    - the tool calls of an answer, if a person was asked about one of these calls;
    - a tool call that begins after the limit;
    - a model call that writes a summary for a compaction."""

    def __post_init__(self) -> None:
        """Raise InvalidArgument if a limit is no number, or negative."""
        require_count("turns", self.turns, is_optional=True)
        require_count("tokens", self.tokens, is_optional=True)
        require_seconds("seconds", self.seconds, is_optional=True)
        require_instance("cost", self.cost, (Decimal, int, float), "pass US dollars as a Decimal", is_optional=True)

    def reached(self, *, turns: int, usage: Usage, seconds: float) -> Reached | None:
        """Return the first limit that a loop has reached; None if it may continue.

        Args:
            turns: model calls so far.
            usage: total usage of these calls.
            seconds: seconds since the loop began.
        """
        if self.turns is not None and turns >= self.turns:
            return Reached("maxTurns", f"turn limit of {self.turns} reached")
        if self.tokens is not None and _tokens(usage) >= self.tokens:
            return Reached("guardRail", f"token limit of {self.tokens} reached")
        if self.cost is not None and usage.cost is not None and usage.cost.total >= self.cost:
            return Reached("guardRail", f"cost limit of ${self.cost} reached")
        if self.seconds is not None and seconds >= self.seconds:
            return Reached("guardRail", self.late)
        return None

    @property
    def late(self) -> str:
        """The text to record when the time limit is reached; "" if there is no time limit."""
        return "" if self.seconds is None else f"time limit of {self.seconds:g} s reached"

    def left(self, seconds: float) -> float | None:
        """Return the seconds left to a loop that began `seconds` ago; None without a time limit."""
        return None if self.seconds is None else self.seconds - seconds


DEFAULT_LIMITS = LoopLimits()


def loop_usage(context: Context, loop_id: str) -> Usage:
    """Return the total usage of the answers so far of `loop_id`, which must be the session's newest loop."""
    usage = Usage()
    for envelope in reversed(context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None and not envelope.is_imported:
            if message.turn_id.loop_id != loop_id:
                break
            usage = usage.combine(message.usage or Usage())
    return usage


def loop_seconds(snapshot: SessionSnapshot, now: float) -> float:
    """Return the seconds since the newest loop began; 0 if there is none.

    Args:
        now: seconds UTC.
    """
    entries, loop = snapshot.context.entries, snapshot.status.loop
    newest = entries[-1].time if entries else now
    # The local clock may be behind the server's: a loop is at least as old as its newest entry.
    return max(now, newest) - loop.started if loop is not None else 0.0


def _tokens(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


# An imported answer with tool calls that have no result. Its calls are closed and never run. Pure.


class ImportedAnswer(NamedTuple):
    """An imported answer and its open tool calls."""

    position: int
    open_calls: tuple[ToolCallBlock, ...]
    """calls in the order of the answer. An id that the answer repeats is listed once for each missing result"""


def imported_answer(context: Context, *, most_calls: int = 100) -> ImportedAnswer | None:
    """Return the newest imported answer of the context that has open calls; None if there is none.

    Args:
        context: the session's context.
        most_calls: maximum number of calls to return. When these have results, the next call returns the rest.
    """
    waiting = context.pairing.waiting
    left = set(waiting)
    if not left:
        return None
    for envelope in reversed(context.path):
        message = envelope.message
        if not isinstance(message, AssistantMessage):
            continue
        calls = tuple(message.tool_calls())
        found = left.intersection(call.id for call in calls)
        if found and envelope.is_imported:
            missing = Counter({call: len(waiting[call]) for call in found})
            return ImportedAnswer(envelope.position, _last(calls, missing)[:most_calls])
        left -= found  # an id names the newest call that has it
        if not left:
            return None
    return None


def _last(calls: tuple[ToolCallBlock, ...], missing: Counter[str]) -> tuple[ToolCallBlock, ...]:
    """Return the last calls of each id, as many as `missing` counts: results belong to the first calls of an id."""
    last: list[ToolCallBlock] = []
    for call in reversed(calls):
        if missing[call.id] > 0:
            missing[call.id] -= 1
            last.append(call)
    return tuple(reversed(last))


# The next decision in a session. Pure: the same log gives every worker the same decision.

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


# How a command is answered, and which commands interrupt a step. Pure.

_REASON_CHARACTERS = 500


class CommandOutcome(NamedTuple):
    """The answer to a command."""

    outcome: Literal["applied", "late", "repeated", "refused"]
    reason: str | None = None


APPLIED, LATE, REPEATED = CommandOutcome("applied"), CommandOutcome("late"), CommandOutcome("repeated")


class Interrupt(NamedTuple):
    """An unanswered command that ends the current step at once."""

    command: Command
    control: Abort | Steer


def find_interrupt(state: LoopState) -> Interrupt | None:
    """Return the first command that ends the current step at once; None if there is none."""
    for command in state.commands:
        match command.control:
            case Abort(when="now", loop_id=loop_id) as abort if loop_id in {None, state.loop_id}:
                return Interrupt(command, abort)
            case Steer(when="now", position=position) as steer if position in state.prompts:
                return Interrupt(command, steer)
            case _:
                pass
    return None


def is_aborted(state: LoopState) -> bool:
    """Whether an unanswered abort applies to the open loop: the abort names this loop, or no loop."""
    loops = {None, state.loop_id}
    return any(isinstance(each.control, Abort) and each.control.loop_id in loops for each in state.commands)


def waits_for_turn(control: Control | MessageError, state: LoopState) -> bool:
    """Whether the command takes effect only after the current turn."""
    match control:
        case Abort(loop_id=loop_id):
            return loop_id in {None, state.loop_id}
        case Pause() | Handoff() | Compact():
            return not state.is_halted
        case _:
            return False


def command_outcome(snapshot: SessionSnapshot, command: Command) -> CommandOutcome:
    """Return the answer to a command that takes effect now."""
    state = snapshot.loop_state
    match command.control:
        case MessageError() as error:
            return CommandOutcome("refused", without_secrets(str(error), _REASON_CHARACTERS))
        case Abort() as abort:
            return APPLIED if _ends_something(abort, command, snapshot) else LATE
        case Steer() as steer:
            return _steer_outcome(steer, snapshot)
        case Approve() | Deny() as control:
            return _approval_outcome(control, command.position, snapshot)
        case Pause():
            return REPEATED if state.is_halted else APPLIED
        case Handoff():
            return REPEATED if snapshot.status.halted == "handoff" else APPLIED
        case Resume():
            return APPLIED if state.is_halted else REPEATED
        case Compact() if is_aborted(state):
            return LATE
        case Compact():
            return CommandOutcome("refused", "this agent does not compact: pass compaction= to AgentLoop")
        case other:
            return CommandOutcome("refused", f"this version does not know the command {other.KIND}")


def _ends_something(abort: Abort, command: Command, snapshot: SessionSnapshot) -> bool:
    """Whether the abort has something to end: an open or stopped loop, an open answer, or an unanswered message."""
    state, loop = snapshot.loop_state, snapshot.status.loop
    if abort.loop_id is not None:
        stopped = loop.loop_id if loop is not None and state.is_stopped else None
        return abort.loop_id in {state.loop_id, stopped}
    is_open = state.loop_id is not None or state.answer is not None or state.is_stopped
    return is_open or any(position < command.position for position in (*state.prompts, *state.deferred))


def _steer_outcome(steer: Steer, snapshot: SessionSnapshot) -> CommandOutcome:
    entries = snapshot.context.entries
    place = find(entries, steer.position)
    if place is None or not is_prompt(entries[place]):
        return CommandOutcome("refused", f"there is no user message at position {steer.position}")
    return LATE if snapshot.loop_state.loop_id is None else APPLIED


def _approval_outcome(control: Approve | Deny, position: int, snapshot: SessionSnapshot) -> CommandOutcome:
    outcome = _open_call_outcome(control, snapshot)
    if outcome == APPLIED and position < snapshot.status.assigned:
        return CommandOutcome("refused", "the session was handed over to another agent after this: decide again")
    if outcome == APPLIED and _is_skipped_before(position, snapshot):
        return CommandOutcome("late", "a message to the agent came before and skips this call")
    if outcome != LATE:
        return outcome
    if not _is_known(control, snapshot):
        return CommandOutcome("refused", "there is no such call")
    return CommandOutcome("late", "this call was imported and is not run") if _is_imported(control, snapshot) else LATE


def _is_skipped_before(position: int, snapshot: SessionSnapshot) -> bool:
    """Whether a message between the open answer and a command skips the calls that wait. The order of the log counts:
    a worker that reads both at once does as one that read the message when it came."""
    state = snapshot.loop_state
    return state.answer is not None and any(state.answer.position < each < position for each in state.prompts)


def _is_imported(control: Approve | Deny, snapshot: SessionSnapshot) -> bool:
    """Whether the newest answer with a call of this id was imported."""
    for envelope in reversed(snapshot.context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage) and _has_call(message, control.tool_call_id):
            return envelope.is_imported
    return False


def _has_call(message: AssistantMessage, call_id: str) -> bool:
    return any(each.id == call_id for each in message.tool_calls())


def _is_known(control: Approve | Deny, snapshot: SessionSnapshot) -> bool:
    """Whether an answer in the log contains this call and belongs to the session that the turn id names.

    Only the turn's session is compared, not the whole turn id: a turn that continued the answer may have left no
    message.
    """
    sessions = {snapshot.context.session}  # a fork also has the turns of its parent
    is_known = False
    for envelope in snapshot.context.entries:
        message = envelope.message
        if isinstance(message, AssistantMessage) and _has_call(message, control.tool_call_id):
            is_known = True
            if message.turn_id is not None:
                sessions.add(message.turn_id.session)
    return is_known and control.turn_id.session in sessions


def _open_call_outcome(control: Approve | Deny, snapshot: SessionSnapshot) -> CommandOutcome:
    """Return the answer to an approval or denial, assuming that the log contains the tool call."""
    answer, loop, call = snapshot.loop_state.answer, snapshot.status.loop, control.tool_call_id
    if answer is None or loop is None or all(each.id != call for each in answer.open_calls):
        return LATE
    question = loop.calls_waiting.get(call)
    # A stopped loop is continued under another turn id; the approval may still name the turn that asked the person.
    if control.turn_id not in (answer.turn_id, answer.message.turn_id, question and question.turn_id):
        asked = answer.turn_id if question is None else question.turn_id
        return CommandOutcome("refused", f"the turn does not match: the call is of turn {asked}")
    if call in loop.calls_started and question is None:
        return LATE
    if isinstance(control, Approve) and control.call_hash is not None:
        hashes = {each.call_hash for each in answer.open_calls if each.id == call}
        if hashes != {control.call_hash}:
            return CommandOutcome("refused", "the call has other arguments than the approved ones: look at it again")
    previous = loop.calls_answered.get(call)
    if previous is None:
        return APPLIED
    return REPEATED if previous.message.kind == control.KIND else LATE


# When the model is called again after a failed answer. Pure: the caller passes the random number.

MODEL_RETRY = RetryPolicy(attempts=4, base=1.0, longest=60.0, jitter="equal")


class CallAgain(NamedTuple):
    """Call the model again in the same loop."""

    delay: float | None
    """seconds to wait; None means at once, with a compacted context"""


def call_again(
    message: AssistantMessage,
    entries: Sequence[Envelope],
    retry: RetryPolicy,
    *,
    can_compact: bool,
    chance: float,
    longest_wait: float,
) -> CallAgain | None:
    """Return when to call the model again; None if the answer succeeded or its failure is final.

    Args:
        entries: the entries of the LLM lane before the answer.
        retry: limits the attempts after transient failures. If the provider asks for a longer delay, that delay is
            used, up to `longest_wait`.
        can_compact: whether the agent compacts a context that is too long for the model. The model is then called once
            more.
        chance: random number from 0 up to 1, see `RetryPolicy.delay`.
        longest_wait: the longest delay in seconds that a provider may ask for, see `RunBounds.retry_after_seconds`.
    """
    failure = failure_of(message)
    if failure is None:
        return None
    failed = [*_failed(entries)]
    if failure.is_overflow:
        has_overflowed = any(each.is_context_overflow() for each in failed)  # a shorter context did not help
        return CallAgain(None) if can_compact and not has_overflowed else None
    attempt = len(failed) + 1
    if not failure.is_transient or attempt >= retry.attempts:
        return None
    return CallAgain(max(retry.delay(attempt, chance), min(failure.retry_after or 0.0, longest_wait)))


def _failed(entries: Sequence[Envelope]) -> Iterator[AssistantMessage]:
    """Yield the failed answers that were retried since the last successful answer."""
    for envelope in reversed(entries):
        message = envelope.message
        if not isinstance(message, AssistantMessage) or envelope.is_imported:
            continue
        if not is_cut(message):
            return
        if (message.metadata or {}).get(AGAIN):
            yield message
