"""Where a session's loop stands, read off its two folds. Pure: whoever takes a session over sees the same.

What a loop appends in one step is chosen so that this is enough: an answer that ends the loop and the loop's end are in
the log together or not at all, and so are the last result of a turn and the end of that turn.

A user who speaks while the model thinks stands before the answer in the log and was not answered by it; only the marks
`SEEN` and `HELD` tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bus.envelope import Envelope
from bus.messages.context_entry import Compaction
from bus.messages.message import AssistantMessage, UserMessage
from bus.messages.turn import TurnId
from handlers.agent.marks import FOLLOW_UP
from handlers.agent.open_answer import Answer, backwards, is_cut, open_answer, wanted_calls
from handlers.agent.status import Command, LoopStatus, Status
from handlers.agent.turn_numbers import last_loop, loop_usage
from handlers.context.attention import is_prompt, left_over, seen_of
from handlers.context.fold import Context

__all__ = ("Answer", "Standing", "last_loop", "loop_usage", "read_standing", "wanted_calls")

UNKNOWN = Status()
"""of a session whose extension lane was not read: nothing is commanded, and the answers alone tell of loops"""


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is to do in a session."""

    seen: int
    """up to where all is answered or done with, but for what follows"""
    shown: int
    """up to where a model was shown it, answers that were cut too"""
    prompts: tuple[int, ...]
    """positions of user messages that the next request is to answer"""
    held: tuple[int, ...]
    """positions of follow-up messages, which wait until the loop is over"""
    answer: Answer | None
    """what the loop goes on from, in a turn of the open loop if there is one; None if it begins with what users said"""
    loop_id: str | None
    """of the session's own loop that is open"""
    is_stopped: bool
    """the last loop ended before it was done: the next one goes on with it"""
    is_waiting: bool
    """all calls that are open wait for a person"""
    is_halted: bool
    """nothing is answered until it is resumed"""
    commands: tuple[Command, ...]
    """not answered yet"""

    @property
    def has_work(self) -> bool:
        """A worker has something to do here, now."""
        if self.commands:
            return True
        if self.is_halted:
            return False
        if self.is_waiting:
            return self.is_interrupted
        return bool(self.prompts) or self.answer is not None or self.is_stopped

    @property
    def is_interrupted(self) -> bool:
        """A user has spoken behind the open answer."""
        return self.answer is not None and any(position > self.answer.position for position in self.prompts)


def read_standing(context: Context, status: Status = UNKNOWN) -> Standing:
    """Where the session stands as of these folds. Reads back no further than the last answer that was not cut."""
    read = _read(context.path)
    answer = open_answer(context.path)
    loop = _open_loop(context.session, status, answer)
    turn_id = _turn_of(answer, loop, status.loop) if answer is not None and loop is not None else None
    if answer is not None and turn_id is not None and turn_id != answer.turn_id:
        answer = answer.taken_up(turn_id)
    is_stopped = loop is None and _is_stopped(context, status, answer, read.newest)
    held = _held(read.unread, status.loop) if loop is not None or is_stopped else ()
    prompts = tuple(envelope.position for envelope in read.unread if envelope.position not in held)
    if not prompts and answer is None and not is_stopped:  # the loop is over but for its end: nothing to wait for
        prompts, held = held, ()
    return Standing(
        seen=read.seen,
        shown=max(read.shown, read.seen),
        prompts=prompts,
        held=held,
        answer=answer,
        loop_id=loop,
        is_stopped=is_stopped,
        is_waiting=loop is not None and answer is not None and _is_waiting(answer, status.loop),
        is_halted=status.halted is not None,
        commands=status.commands,
    )


class _Read(NamedTuple):
    """What was read of what users said."""

    seen: int
    shown: int
    newest: int
    """position of the last answer or note that was not cut; 0 if there is none"""
    unread: tuple[Envelope, ...]


def _read(path: Sequence[Envelope]) -> _Read:
    shown: int | None = None
    unread: list[Envelope] = []
    for envelope in backwards(path):
        if is_prompt(envelope):
            unread.append(envelope)
            continue
        seen = seen_of(envelope)
        if seen is None:
            continue
        shown = seen if shown is None else shown
        if isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message):
            continue
        # Those who spoke while it was thought stand before it, and so do those whom it was not to hear.
        unread += left_over(path, envelope)
        return _Read(seen, shown, envelope.position, tuple(reversed(unread)))
    return _Read(0, shown or 0, 0, tuple(reversed(unread)))


def _held(unread: Sequence[Envelope], loop: LoopStatus | None) -> tuple[int, ...]:
    """The follow-ups that came since the loop began."""
    since = 0 if loop is None else loop.position
    return tuple(
        envelope.position
        for envelope in unread
        if envelope.position > since
        and isinstance(envelope.message, UserMessage)
        and (envelope.message.metadata or {}).get(FOLLOW_UP)
    )


def _open_loop(session: str, status: Status, answer: Answer | None) -> str | None:
    loop = status.loop
    if loop is not None and loop.loop_id.partition(".")[0] == session:
        return loop.loop_id if loop.ended is None else None
    if answer is None:
        return None
    # Of a fork, or of an extension lane whose beginning is gone: the messages tell.
    stamps = (answer.turn_id, *(result.turn_id for _, result in answer.results))
    return next((stamp.loop_id for stamp in stamps if stamp is not None and stamp.session == session), None)


def _turn_of(answer: Answer, loop_id: str, loop: LoopStatus | None) -> TurnId:
    """The turn of the open loop in which the answer's tools run."""
    stamps = (answer.turn_id, *(result.turn_id for _, result in answer.results))
    own = next((stamp for stamp in stamps if stamp is not None and stamp.loop_id == loop_id), None)
    if own is not None:
        return own
    return loop.turn if loop is not None and loop.turn is not None else TurnId(loop_id=loop_id, turn_index=0)


def _is_stopped(context: Context, status: Status, answer: Answer | None, newest: int) -> bool:
    """The newest loop is to be gone on with, though none of it is open."""
    loop = status.loop
    if loop is None or not loop.is_stopped:
        return False
    if answer is not None or loop.ended != "contextCompacted":
        return answer is not None
    # What it was to answer may be in the summary now.
    first = context.path[0] if context.path else None
    return first is not None and isinstance(first.message, Compaction) and newest < first.position


def _is_waiting(answer: Answer, loop: LoopStatus | None) -> bool:
    if loop is None or not answer.open_calls:
        return False
    waiting = loop.calls_waiting.keys() - loop.calls_answered.keys()
    return all(call.id in waiting for call in answer.open_calls)
