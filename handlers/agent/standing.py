"""Where a session's loop stands, read off the LLM lane alone. Pure: whoever takes a session over sees the same.

What a loop appends in one step is chosen so that this is enough: an answer that ends the loop and the loop's end are in
the log together or not at all, and so are the last result of a turn and the end of that turn.

A user who speaks while the model thinks stands before the answer in the log and was not answered by it; only the mark
`SEEN` tells.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bus.envelope import Envelope
from bus.messages.content import ToolCallBlock
from bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage, UserMessage
from bus.messages.turn import TurnId
from bus.messages.usage import Usage
from handlers.agent.marks import CUT, SEEN
from handlers.context.fold import Context

__all__ = ("Answer", "Standing", "last_loop", "loop_usage", "read_standing", "wanted_calls")

_TOOL_STOPS = frozenset({"toolUse", "stop", "length"})


class Answer(NamedTuple):
    """A loop's last answer, and what has come of the tools it called."""

    position: int
    message: AssistantMessage
    turn_id: TurnId
    results: tuple[tuple[int, ToolResultMessage], ...]
    """with their positions, in the order they came"""

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The tools that have to run for it."""
        return wanted_calls(self.message)

    @property
    def open_calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls that have no result yet."""
        answered = {result.tool_call_id for _, result in self.results}
        return tuple(call for call in self.calls if call.id not in answered)

    @property
    def is_final(self) -> bool:
        """All its tools have run and every one of them says that no model call has to follow."""
        return not self.open_calls and all(result.terminate for _, result in self.results)

    @property
    def is_cut(self) -> bool:
        """Its worker was stopped while it was spoken."""
        return bool((self.message.metadata or {}).get(CUT))


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is to do in a session."""

    seen: int
    """up to where the models have read"""
    prompts: tuple[int, ...]
    """positions of user messages that no model has read"""
    answer: Answer | None
    """of the loop that is not over; None if there is none"""

    @property
    def has_work(self) -> bool:
        return bool(self.prompts) or self.answer is not None


def wanted_calls(message: AssistantMessage) -> tuple[ToolCallBlock, ...]:
    """The tools that have to run for an answer: none if it failed, or stopped for a reason that is no tool's."""
    return tuple(message.tool_calls()) if message.stop_reason in _TOOL_STOPS else ()


def read_standing(context: Context) -> Standing:
    """Where the session stands as of this context. Reads back no further than the last answer that was not cut."""
    path = context.path
    seen = 0
    prompts: list[int] = []
    for envelope in _backwards(path):
        message = envelope.message
        if isinstance(message, UserMessage) and message.turn_id is None:
            prompts.append(envelope.position)
        elif isinstance(message, AssistantMessage) and not (message.metadata or {}).get(CUT):
            seen = _seen(envelope.position, message)
            # Those who spoke while it was thought stand before it.
            prompts += _unread(path, seen, envelope.position)
            break
    return Standing(seen, tuple(sorted(prompts)), _open_answer(path))


def loop_usage(context: Context, loop_id: str) -> Usage:
    """The sum over the answers of a session's newest loop so far."""
    usage = Usage()
    for envelope in _backwards(context.entries):
        message = envelope.message
        if isinstance(message, AssistantMessage) and message.turn_id is not None:
            if message.turn_id.loop_id != loop_id:
                break
            usage = usage.combine(message.usage or Usage())
    return usage


def last_loop(context: Context, prefix: str) -> int:
    """The number of the newest loop whose id begins with `prefix`, "<session>.<config>."; 0 if there was none.

    A loop that died before its first answer is not seen here, and gets its number again.
    """
    for envelope in _backwards(context.entries):
        turn_id = envelope.message.turn_id if isinstance(envelope.message, LlmMessage) else None
        if turn_id is not None and turn_id.loop_id.startswith(prefix):
            number = turn_id.loop_id[len(prefix) :]
            if number.isdecimal():
                return int(number)
    return 0


def _open_answer(path: Sequence[Envelope]) -> Answer | None:
    results: list[tuple[int, ToolResultMessage]] = []
    for envelope in _backwards(path):
        match envelope.message:
            case ToolResultMessage() as result:
                results.append((envelope.position, result))
            case UserMessage(turn_id=TurnId()):
                return None  # the note that a limit was reached ends a loop
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                ids = {call.id for call in message.tool_calls()}
                own = tuple((at, result) for at, result in reversed(results) if result.tool_call_id in ids)
                answer = Answer(envelope.position, message, turn_id, own)
                return answer if answer.is_cut or (answer.calls and not answer.is_final) else None
            case AssistantMessage():
                return None  # no loop's: imported, or a worker's word that the loop failed
            case _:
                pass
    return None


def _seen(position: int, message: AssistantMessage) -> int:
    seen = (message.metadata or {}).get(SEEN)
    return seen if isinstance(seen, int) else position


def _unread(path: Sequence[Envelope], seen: int, before: int) -> Iterator[int]:
    for envelope in _backwards(path):
        if envelope.position <= seen:
            return
        message = envelope.message
        if envelope.position < before and isinstance(message, UserMessage) and message.turn_id is None:
            yield envelope.position


def _backwards(entries: Sequence[Envelope]) -> Iterator[Envelope]:
    return (entries[index] for index in range(len(entries) - 1, -1, -1))
