"""How a command is answered, and which commands interrupt a step. Pure."""

from typing import Literal, NamedTuple

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import MessageError
from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.control import Abort, Approve, Compact, Control, Deny, Handoff, Pause, Resume, Steer
from lanebus.handlers.agent.decide.loop_state import LoopState, SessionSnapshot
from lanebus.handlers.context.read_marks import is_prompt
from lanebus.handlers.context.tree import find
from lanebus.handlers.projections.agent_status import Command

__all__ = ("CommandOutcome", "Interrupt", "command_outcome", "find_interrupt", "is_aborted", "waits_for_turn")

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
