"""The state of a session's loop, derived from the folds of both lanes: its open answer, its next ids. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lanebus.bus.messages import (
    AssistantMessage,
    Compaction,
    LlmMessage,
    ToolCallBlock,
    ToolResultMessage,
    TurnId,
    UserMessage,
)
from lanebus.bus.text import number_in
from lanebus.bus.wire import Envelope
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT, FOLLOW_UP, IMPORTED_CALL, WARNING
from lanebus.handlers.context import Context, is_prompt, left_over, read_position
from lanebus.handlers.projections import Command, LoopStatus, Status

# The answer that a loop continues: the model's last answer with the tool results so far. Pure.

_TOOL_STOPS = frozenset({"toolUse", "stop", "length"})


class OpenAnswer(NamedTuple):
    """A loop's last answer and the results of its tool calls."""

    position: int
    message: AssistantMessage
    turn_id: TurnId
    """the turn of the tool results: the answer's own turn, or a turn of the loop that adopted the answer"""
    results: tuple[tuple[int, ToolResultMessage], ...]
    """tool results with their positions, in log order"""

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls that need a result."""
        return wanted_calls(self.message)

    @property
    def open_calls(self) -> tuple[ToolCallBlock, ...]:
        """The tool calls that have no result yet."""
        answered = {result.tool_call_id for _, result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)

    @property
    def turn_ids(self) -> tuple[TurnId, ...]:
        """The turns that the answer and its results name."""
        named = (self.turn_id, *(result.turn_id for _, result in self.results))
        return tuple(turn_id for turn_id in named if turn_id is not None)

    @property
    def is_continued(self) -> bool:
        """Whether a call has no result, or a result asks for another model call."""
        return bool(self.calls) and (bool(self.open_calls) or not all(result.terminate for _, result in self.results))

    def adopted(self, turn_id: TurnId) -> "OpenAnswer":
        """Return a copy for a turn of another loop. The copy has no usage: the loop that called the model has counted
        it."""
        return self._replace(turn_id=turn_id, message=self.message.model_copy(update={"usage": None}))


def is_cut(message: AssistantMessage) -> bool:
    """Whether the answer failed and its loop stays open: the next turn answers the same prompts."""
    metadata = message.metadata or {}
    return bool(metadata.get(CUT) or metadata.get(AGAIN))


def wanted_calls(message: AssistantMessage) -> tuple[ToolCallBlock, ...]:
    """Return the tool calls of an answer that need a result; none if the answer failed or was cut."""
    return tuple(message.tool_calls()) if message.stop_reason in _TOOL_STOPS else ()


def open_answer(path: Sequence[Envelope]) -> OpenAnswer | None:
    """Return the answer that the next turn continues; None if there is no answer, or the last answer is complete.

    Imported entries are passed over: no loop continues an imported answer.
    """
    results: list[tuple[int, ToolResultMessage]] = []
    cut: OpenAnswer | None = None
    for envelope in reversed(path):
        if envelope.is_imported:
            continue
        match envelope.message:
            case ToolResultMessage() as result:
                if IMPORTED_CALL not in (result.metadata or {}):  # an imported call may have the id of the loop's call
                    results.append((envelope.position, result))
            case UserMessage(turn_id=TurnId()) as note if WARNING not in (note.metadata or {}):
                return cut  # the note at the end of a loop
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                ids = {call.id for call in message.tool_calls()}
                own = tuple((at, result) for at, result in reversed(results) if result.tool_call_id in ids)
                answer = OpenAnswer(envelope.position, message, turn_id, own)
                if is_cut(message):
                    cut = cut or answer
                    continue
                if cut is not None:  # the cut model call had these results as its input
                    return cut._replace(results=own) if answer.is_continued else cut
                return answer if answer.is_continued else None
            case AssistantMessage():
                return cut  # an answer outside of a turn, or a worker's record that the agent failed
            case _:
                pass
    return cut


# The state of a session's loop, derived from the folds of both lanes. Pure.
#
# Entries that belong together are appended in one batch: the final answer with the loop's end, and a turn's last result
# with the turn's end. The log contains both entries of such a pair or neither.
#
# A message that a user sends while the model answers precedes that answer in the log, although the model did not read
# the message. The answer's metadata (`READ_UP_TO` and `DEFERRED`) records what the model has read.
#
# Imported entries are part of the context but not of the loop: imported messages need no answer, and imported answers
# have read nothing.


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
    waiting = loop.calls_waiting.keys() - loop.calls_answered.keys() - loop.calls_lapsed.keys()  # these are asked anew
    return all(call.id in waiting for call in answer.open_calls)


# The ids of a session's next loop and next turn, derived from the log. Pure.

_MOST_DIGITS = 15
"""Longer numbers are ignored: ids may come from foreign clients."""
_MOST_IMPORTED_DIGITS = 9
"""An import can name any number. The next numbers must stay within `_MOST_DIGITS`."""


def new_loop(snapshot: SessionSnapshot, config: str) -> str:
    """Return the id of the session's next loop, `<session>.<config>.<N>`.

    If a loop left neither an answer nor an event, its number is used again.
    """
    context, loop = snapshot.context, snapshot.status.loop
    prefix = f"{context.session}.{config}."
    number = 0 if loop is None else _number(loop.loop_id, prefix)
    for envelope in reversed(context.entries):
        turn_id = envelope.message.turn_id if isinstance(envelope.message, LlmMessage) else None
        if turn_id is None:
            continue
        if envelope.is_imported:  # the number may be smaller than those of earlier entries
            number = max(number, _number(turn_id.loop_id, prefix, _MOST_IMPORTED_DIGITS))
        elif last := _number(turn_id.loop_id, prefix):
            number = max(number, last)
            break
    return f"{prefix}{number + 1}"


def next_turn(snapshot: SessionSnapshot, loop_id: str) -> TurnId:
    """Return the turn of an open loop's next model call: a turn that has begun and has no answer, else a new turn."""
    for envelope in reversed(snapshot.context.entries):
        message = envelope.message
        if envelope.is_imported:
            continue
        if isinstance(message, AssistantMessage | ToolResultMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            return TurnId(loop_id=loop_id, turn_index=message.turn_id.turn_index + 1)
    loop = snapshot.status.loop
    begun = loop.turn if loop is not None and loop.loop_id == loop_id else None
    return begun or TurnId(loop_id=loop_id, turn_index=0)


def _number(loop_id: str, prefix: str, digits: int = _MOST_DIGITS) -> int:
    number = loop_id[len(prefix) :] if loop_id.startswith(prefix) else ""
    return number_in(number, digits) or 0
