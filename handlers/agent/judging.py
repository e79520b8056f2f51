"""What becomes of a command, decided from the log alone. Pure."""

from typing import Literal, NamedTuple

from bus.errors import MessageError
from bus.messages.control import Abort, Approve, Compact, Control, Deny, Handoff, Pause, Resume, Steer
from handlers.agent.interrupt import is_aborted
from handlers.agent.run import View
from handlers.agent.standing import Standing, read_standing
from handlers.agent.status import Command
from handlers.context.attention import is_prompt
from handlers.context.tree import find

__all__ = ("Judgement", "judge", "waits_for_turn")

_REASON_CHARACTERS = 500


class Judgement(NamedTuple):
    """What is answered."""

    outcome: Literal["applied", "late", "repeated", "refused"]
    reason: str | None = None


APPLIED, LATE, REPEATED = Judgement("applied"), Judgement("late"), Judgement("repeated")


def waits_for_turn(control: Control | MessageError, standing: Standing) -> bool:
    """The command is obeyed once the turn that is under way has ended."""
    match control:
        case Abort(loop_id=loop_id):
            return loop_id in {None, standing.loop_id}
        case Pause() | Handoff() | Compact():
            return not standing.is_halted
        case _:
            return False


def judge(view: View, command: Command) -> Judgement:
    """What becomes of a command in a session that stands so."""
    standing = read_standing(*view)
    match command.control:
        case MessageError() as error:
            return Judgement("refused", str(error)[:_REASON_CHARACTERS])
        case Abort() as abort:
            return APPLIED if _has_to_end(abort, command, view, standing) else LATE
        case Steer() as steer:
            return _judge_steer(steer, view, standing)
        case Approve() | Deny() as word:
            return _judge_word(word, view, standing)
        case Pause():
            return REPEATED if standing.is_halted else APPLIED
        case Handoff():
            return REPEATED if view.status.halted == "handoff" else APPLIED
        case Resume():
            return APPLIED if standing.is_halted else REPEATED
        case Compact() if is_aborted(standing):
            return LATE
        case Compact():
            return Judgement("refused", "this agent compacts nothing")
        case other:
            return Judgement("refused", f"{other.KIND} is not known here")


def _has_to_end(abort: Abort, command: Command, view: View, standing: Standing) -> bool:
    """There is something that the command ends: a loop, what one left open, or words that none has taken up."""
    loop = view.status.loop
    if abort.loop_id is not None:
        stopped = loop.loop_id if loop is not None and standing.is_stopped else None
        return abort.loop_id in {standing.loop_id, stopped}
    is_open = standing.loop_id is not None or standing.answer is not None or standing.is_stopped
    return is_open or any(position < command.position for position in (*standing.prompts, *standing.held))


def _judge_steer(steer: Steer, view: View, standing: Standing) -> Judgement:
    entries = view.context.entries
    place = find(entries, steer.position)
    if place is None or not is_prompt(entries[place]):
        return Judgement("refused", f"no user speaks at position {steer.position}")
    return LATE if standing.loop_id is None else APPLIED


def _judge_word(word: Approve | Deny, view: View, standing: Standing) -> Judgement:
    answer, loop, call = standing.answer, view.status.loop, word.tool_call_id
    if answer is None or loop is None or all(each.id != call for each in answer.open_calls):
        return LATE
    asked = loop.calls_waiting.get(call)
    # Who was asked in the turn of a loop that was stopped since answers what was asked then.
    if word.turn_id not in (answer.turn_id, answer.message.turn_id, asked and asked.turn_id):
        return LATE
    if call in loop.calls_started and asked is None:
        return LATE
    before = loop.calls_answered.get(call)
    if before is None:
        return APPLIED
    return REPEATED if before.message.kind == word.KIND else LATE
