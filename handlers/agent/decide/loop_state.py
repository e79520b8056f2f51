"""Where a session's loop stands, derived from the folds of both lanes. Pure.

A step appends in one batch whatever belongs together, so this is enough: the final answer and the loop's end are in
the log together or not at all, and so are a turn's last result and the turn's end.

A message that the user sends while the model answers stands before that answer in the log, though the answer was made
without it. Only the marks `READ_UP_TO` and `DEFERRED` of the answer say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.message import AssistantMessage, UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.open_answer import OpenAnswer, backwards, is_cut, open_answer
from lanebus.handlers.agent.metadata_keys import FOLLOW_UP
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.read_marks import is_prompt, left_over, read_position
from lanebus.handlers.projections.agent_status import Command, LoopStatus, Status

__all__ = ("LoopState", "SessionSnapshot", "derive_loop_state")


@dataclass(frozen=True, slots=True)
class LoopState:
    """What there is to do in a session."""

    read_up_to: int
    """everything up to here is answered or needs no answer, except for `prompts` and `deferred`"""
    visible_up_to: int
    """a model was shown everything up to here; answers that were cut count too"""
    prompts: tuple[int, ...]
    """positions of the user messages that the next request answers"""
    deferred: tuple[int, ...]
    """positions of the follow-up messages that wait until the loop is over"""
    answer: OpenAnswer | None
    """the answer that the loop continues, in a turn of the open loop if there is one; None if it starts from prompts"""
    loop_id: str | None
    """the session's own open loop"""
    is_stopped: bool
    """the last loop ended before it was done, and the next one continues it"""
    is_waiting: bool
    """every open call waits for a person"""
    is_halted: bool
    """paused or handed off: only commands are answered until it is resumed"""
    commands: tuple[Command, ...]
    """not answered yet, in the order of the log"""

    @property
    def has_work(self) -> bool:
        """Whether a worker has something to do here now."""
        if self.commands:
            return True
        if self.is_halted:
            return False
        if self.is_waiting:
            # Only a message that came after the open answer goes ahead of the person who is waited for.
            return self.answer is not None and any(position > self.answer.position for position in self.prompts)
        return bool(self.prompts) or self.answer is not None or self.is_stopped


@dataclass(frozen=True)
class SessionSnapshot:
    """A session as its worker sees it: both lanes folded up to the same entry."""

    context: Context
    """of the LLM lane"""
    status: Status
    """of the extension lane"""

    @cached_property
    def loop_state(self) -> LoopState:
        """Where the session's loop stands. Derived at the first use, then kept."""
        return derive_loop_state(self.context, self.status)


def derive_loop_state(context: Context, status: Status) -> LoopState:
    """Return the loop state as of these folds. Reads back no further than the last answer that was not cut."""
    read = _read(context.path)
    answer = open_answer(context.path)
    loop = _open_loop(context.session, status, answer)
    turn_id = _turn_of(answer, loop, status.loop) if answer is not None and loop is not None else None
    if answer is not None and turn_id is not None and turn_id != answer.turn_id:
        answer = answer.adopted(turn_id)
    is_stopped = loop is None and _is_stopped(context, status, answer, read.newest)
    deferred = _follow_ups(read.unread, status.loop) if loop is not None or is_stopped else ()
    prompts = tuple(envelope.position for envelope in read.unread if envelope.position not in deferred)
    if not prompts and answer is None and not is_stopped:  # only the loop's end is missing: nothing to wait for
        prompts, deferred = deferred, ()
    return LoopState(
        read_up_to=read.read_up_to,
        visible_up_to=max(read.visible_up_to, read.read_up_to),
        prompts=prompts,
        deferred=deferred,
        answer=answer,
        loop_id=loop,
        is_stopped=is_stopped,
        is_waiting=loop is not None and answer is not None and _is_waiting(answer, status.loop),
        is_halted=status.halted is not None,
        commands=status.commands,
    )


class _Read(NamedTuple):
    """How far users' messages were read."""

    read_up_to: int
    visible_up_to: int
    newest: int
    """position of the last answer or note that was not cut; 0 if there is none"""
    unread: tuple[Envelope, ...]


def _read(path: Sequence[Envelope]) -> _Read:
    visible: int | None = None
    unread: list[Envelope] = []
    for envelope in backwards(path):
        if is_prompt(envelope):
            unread.append(envelope)
            continue
        read_up_to = read_position(envelope)
        if read_up_to is None:
            continue
        visible = read_up_to if visible is None else visible
        if isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message):
            continue
        # Messages sent during the answer stand before it, and so do those that its model was not shown.
        unread += left_over(path, envelope)
        return _Read(read_up_to, visible, envelope.position, tuple(reversed(unread)))
    return _Read(0, visible or 0, 0, tuple(reversed(unread)))


def _follow_ups(unread: Sequence[Envelope], loop: LoopStatus | None) -> tuple[int, ...]:
    """The follow-ups that came since the loop began."""
    since = 0 if loop is None else loop.position
    return tuple(
        envelope.position
        for envelope in unread
        if envelope.position > since
        and isinstance(envelope.message, UserMessage)
        and (envelope.message.metadata or {}).get(FOLLOW_UP)
    )


def _open_loop(session: str, status: Status, answer: OpenAnswer | None) -> str | None:
    loop = status.loop
    if loop is not None and loop.loop_id.partition(".")[0] == session:
        return loop.loop_id if loop.ended is None else None
    # In a fork, or if the beginning of the extension lane was trimmed, only the messages name the loop.
    stamps = () if answer is None else answer.stamps
    return next((stamp.loop_id for stamp in stamps if stamp.session == session), None)


def _turn_of(answer: OpenAnswer, loop_id: str, loop: LoopStatus | None) -> TurnId:
    """The turn of the open loop in which the answer's tools run."""
    own = next((stamp for stamp in answer.stamps if stamp.loop_id == loop_id), None)
    if own is not None:
        return own
    return loop.turn if loop is not None and loop.turn is not None else TurnId(loop_id=loop_id, turn_index=0)


def _is_stopped(context: Context, status: Status, answer: OpenAnswer | None, newest: int) -> bool:
    """Whether the next loop continues the newest one, though none of it is open."""
    loop = status.loop
    if loop is None or not loop.is_stopped:
        return False
    if answer is not None or loop.ended != "contextCompacted":
        return answer is not None
    # The prompts that it was to answer may be in the summary now.
    first = context.path[0] if context.path else None
    return first is not None and isinstance(first.message, Compaction) and newest < first.position


def _is_waiting(answer: OpenAnswer, loop: LoopStatus | None) -> bool:
    if loop is None or not answer.open_calls:
        return False
    waiting = loop.calls_waiting.keys() - loop.calls_answered.keys()
    return all(call.id in waiting for call in answer.open_calls)
