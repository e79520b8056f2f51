"""The outcome of a command, and which commands interrupt a step. Decided from the log alone. Pure."""

from typing import Literal, NamedTuple

from lanebus.bus.errors import MessageError
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
    """A command that ends a step at once. It is not answered yet."""

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
    """Whether an abort of the open loop, or of the next one, is not answered yet."""
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
    """Return the outcome of a command that takes effect now."""
    state = snapshot.loop_state
    match command.control:
        case MessageError() as error:
            return CommandOutcome("refused", str(error)[:_REASON_CHARACTERS])
        case Abort() as abort:
            return APPLIED if _ends_something(abort, command, snapshot) else LATE
        case Steer() as steer:
            return _steer_outcome(steer, snapshot)
        case Approve() | Deny() as word:
            return _approval_outcome(word, snapshot)
        case Pause():
            return REPEATED if state.is_halted else APPLIED
        case Handoff():
            return REPEATED if snapshot.status.halted == "handoff" else APPLIED
        case Resume():
            return APPLIED if state.is_halted else REPEATED
        case Compact() if is_aborted(state):
            return LATE
        case Compact():
            return CommandOutcome("refused", "this agent compacts nothing")
        case other:
            return CommandOutcome("refused", f"{other.KIND} is not known here")


def _ends_something(abort: Abort, command: Command, snapshot: SessionSnapshot) -> bool:
    """Whether there is a loop to end, calls that one left open, or messages that no loop has answered."""
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
        return CommandOutcome("refused", f"no user speaks at position {steer.position}")
    return LATE if snapshot.loop_state.loop_id is None else APPLIED


def _approval_outcome(word: Approve | Deny, snapshot: SessionSnapshot) -> CommandOutcome:
    answer, loop, call = snapshot.loop_state.answer, snapshot.status.loop, word.tool_call_id
    if answer is None or loop is None or all(each.id != call for each in answer.open_calls):
        return LATE
    asked = loop.calls_waiting.get(call)
    # A question that was asked in a turn of a loop that was stopped since may be answered under that turn.
    if word.turn_id not in (answer.turn_id, answer.message.turn_id, asked and asked.turn_id):
        return LATE
    if call in loop.calls_started and asked is None:
        return LATE
    before = loop.calls_answered.get(call)
    if before is None:
        return APPLIED
    return REPEATED if before.message.kind == word.KIND else LATE
