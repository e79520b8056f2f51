"""The state of a session's loop, derived from the folds of both lanes. Pure.

Entries that belong together are appended in one batch: the final answer with the loop's end, and a turn's last result
with the turn's end. The log contains both entries of such a pair or neither.

A message that a user sends while the model answers precedes that answer in the log, although the model did not read the
message. The answer's metadata (`READ_UP_TO` and `DEFERRED`) records what the model has read.

Imported entries are part of the context but not of the loop: imported messages need no answer, and imported answers
have read nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.context_entry import Compaction
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.decide.open_answer import OpenAnswer, is_cut, open_answer
from lanebus.handlers.agent.metadata_keys import FOLLOW_UP
from lanebus.handlers.context.fold import Context
from lanebus.handlers.context.read_marks import is_prompt, left_over, read_position
from lanebus.handlers.projections.agent_status import Command, LoopStatus, Status

__all__ = ("LoopState", "SessionSnapshot", "derive_loop_state", "unread_prompts")


@dataclass(frozen=True, slots=True)
class LoopState:
    """What is left to do in a session."""

    read_up_to: int
    """messages up to this position need no answer, except for `prompts` and `deferred`"""
    visible_up_to: int
    """a model was shown every message up to this position, even if the model's answer was cut"""
    prompts: tuple[int, ...]
    """positions of the user messages that the next request answers"""
    deferred: tuple[int, ...]
    """positions of the follow-up messages that wait until the loop has ended"""
    answer: OpenAnswer | None
    """the answer that the next turn continues; None if the next turn starts from prompts. If a loop is open, the
    `turn_id` of this answer is a turn of the open loop"""
    loop_id: str | None
    """id of the session's open loop"""
    is_stopped: bool
    """whether the last loop was paused, handed off or compacted. The next loop continues its work"""
    is_waiting: bool
    """whether tool calls are open, and all of them wait for a person"""
    is_halted: bool
    """whether the session is paused or handed off. Only commands are answered until `Resume`"""
    commands: tuple[Command, ...]
    """unanswered commands in the order of the log"""

    @property
    def has_work(self) -> bool:
        """Whether a worker can do something now."""
        if self.commands:
            return True
        if self.is_halted:
            return False
        if self.is_waiting:
            # A message after the open answer does not wait for the person; earlier messages do.
            return self.answer is not None and any(position > self.answer.position for position in self.prompts)
        return bool(self.prompts) or self.answer is not None or self.is_stopped


@dataclass(frozen=True)
class SessionSnapshot:
    """A session's state for its worker: both lanes, folded up to the same entry."""

    context: Context
    """fold of the LLM lane"""
    status: Status
    """fold of the extension lane"""

    @cached_property
    def loop_state(self) -> LoopState:
        """The state of the session's loop, derived at the first use."""
        return derive_loop_state(self.context, self.status)


def derive_loop_state(context: Context, status: Status) -> LoopState:
    """Return the loop state as of these folds. The context is searched backwards to the last answer that was not
    cut."""
    read = _read(context.path)
    answer = open_answer(context.path)
    loop = _open_loop(context.session, status, answer)
    if answer is not None and loop is not None:
        answer = _in_loop(answer, loop, status.loop)
    is_stopped = loop is None and _is_stopped(context, status, answer, read.newest)
    deferred = _follow_ups(read.unread, status.loop) if loop is not None or is_stopped else ()
    prompts = tuple(envelope.position for envelope in read.unread if envelope.position not in deferred)
    if not prompts and answer is None and not is_stopped:  # the loop has nothing else to do
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


def unread_prompts(path: Sequence[Envelope], end: int) -> tuple[Envelope, ...]:
    """Return the user messages in `path[:end]` that no answer in `path[:end]` answers."""
    return _read(path[:end]).unread


class _Read(NamedTuple):
    """Up to which user messages the models have read."""

    read_up_to: int
    visible_up_to: int
    newest: int
    """position of the last answer or final note that was not cut; 0 if there is none"""
    unread: tuple[Envelope, ...]


def _read(path: Sequence[Envelope]) -> _Read:
    visible: int | None = None
    unread: list[Envelope] = []
    for envelope in reversed(path):
        if envelope.is_imported:
            continue
        if is_prompt(envelope):
            unread.append(envelope)
            continue
        read_up_to = read_position(envelope)
        if read_up_to is None:
            continue
        visible = read_up_to if visible is None else visible
        if isinstance(envelope.message, AssistantMessage) and is_cut(envelope.message):
            continue
        # Messages that were deferred, or sent while the model answered, precede the answer in the log.
        unread += left_over(path, envelope)
        return _Read(read_up_to, visible, envelope.position, tuple(reversed(unread)))
    return _Read(0, visible or 0, 0, tuple(reversed(unread)))


def _follow_ups(unread: Sequence[Envelope], loop: LoopStatus | None) -> tuple[int, ...]:
    """Return the follow-ups that were sent after the loop began."""
    began = 0 if loop is None else loop.position
    return tuple(
        envelope.position
        for envelope in unread
        if envelope.position > began
        and isinstance(envelope.message, UserMessage)
        and (envelope.message.metadata or {}).get(FOLLOW_UP)
    )


def _open_loop(session: str, status: Status, answer: OpenAnswer | None) -> str | None:
    loop = status.loop
    if loop is not None and loop.loop_id.partition(".")[0] == session:
        return loop.loop_id if loop.ended is None else None
    # In a fork, or after a trim of the extension lane, only the LLM lane names the loop.
    turn_ids = () if answer is None else answer.turn_ids
    return next((turn_id.loop_id for turn_id in turn_ids if turn_id.session == session), None)


def _in_loop(answer: OpenAnswer, loop_id: str, loop: LoopStatus | None) -> OpenAnswer:
    """Return the answer with the turn of the open loop in which its tools run."""
    own = next((turn_id for turn_id in answer.turn_ids if turn_id.loop_id == loop_id), None)
    newest = None if loop is None else loop.turn
    turn_id = own or newest or TurnId(loop_id=loop_id, turn_index=0)
    return answer if turn_id == answer.turn_id else answer.adopted(turn_id)


def _is_stopped(context: Context, status: Status, answer: OpenAnswer | None, newest: int) -> bool:
    """Whether the newest loop has ended and the next loop continues its work."""
    loop = status.loop
    if loop is None or not loop.is_stopped:
        return False
    if answer is not None or loop.ended != "contextCompacted":
        return answer is not None
    # The loop's prompts may be in the summary, so they do not show as unread.
    first = context.path[0] if context.path else None
    return first is not None and isinstance(first.message, Compaction) and newest < first.position


def _is_waiting(answer: OpenAnswer, loop: LoopStatus | None) -> bool:
    if loop is None or not answer.open_calls:
        return False
    waiting = loop.calls_waiting.keys() - loop.calls_answered.keys()
    return all(call.id in waiting for call in answer.open_calls)
