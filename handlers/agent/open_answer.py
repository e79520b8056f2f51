"""The answer that a session's loop goes on from: its last one, and what has come of the tools that it called. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bus.envelope import Envelope
from bus.messages.content import ToolCallBlock
from bus.messages.message import AssistantMessage, ToolResultMessage, UserMessage
from bus.messages.turn import TurnId
from handlers.agent.marks import AGAIN, CUT, WARNING

__all__ = ("Answer", "backwards", "is_cut", "open_answer", "wanted_calls")

_TOOL_STOPS = frozenset({"toolUse", "stop", "length"})


class Answer(NamedTuple):
    """A loop's last answer, and what has come of the tools it called."""

    position: int
    message: AssistantMessage
    turn_id: TurnId
    """the turn that its results belong to: the message's own, or that of the loop that goes on with it"""
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
        """It failed and the loop is not over: its next turn answers the same."""
        return is_cut(self.message)

    def taken_up(self, turn_id: TurnId) -> "Answer":
        """The same in a turn of a loop that goes on with it. Its usage was counted by the loop that asked for it."""
        return self._replace(turn_id=turn_id, message=self.message.model_copy(update={"usage": None}))


def is_cut(message: AssistantMessage) -> bool:
    """The answer failed and its loop is not over."""
    metadata = message.metadata or {}
    return bool(metadata.get(CUT) or metadata.get(AGAIN))


def wanted_calls(message: AssistantMessage) -> tuple[ToolCallBlock, ...]:
    """The tools that have to run for an answer: none if it failed, or stopped for a reason that is no tool's."""
    return tuple(message.tool_calls()) if message.stop_reason in _TOOL_STOPS else ()


def open_answer(path: Sequence[Envelope]) -> Answer | None:
    """The answer that the path goes on from; None if nothing has to follow the last one, or there is none."""
    results: list[tuple[int, ToolResultMessage]] = []
    cut: Answer | None = None
    for envelope in backwards(path):
        match envelope.message:
            case ToolResultMessage() as result:
                results.append((envelope.position, result))
            case UserMessage(turn_id=TurnId()) as note if WARNING not in (note.metadata or {}):
                return cut  # the note that a limit was reached ends a loop
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                ids = {call.id for call in message.tool_calls()}
                own = tuple((at, result) for at, result in reversed(results) if result.tool_call_id in ids)
                answer = Answer(envelope.position, message, turn_id, own)
                if answer.is_cut:
                    cut = cut or answer
                    continue
                goes_on = bool(answer.calls) and not answer.is_final
                if cut is not None:  # its model was asked with these
                    return cut._replace(results=own) if goes_on else cut
                return answer if goes_on else None
            case AssistantMessage():
                return cut  # no loop's: imported, or a worker's word that the loop failed
            case _:
                pass
    return cut


def backwards(entries: Sequence[Envelope]) -> Iterator[Envelope]:
    """The entries from the newest to the oldest."""
    return (entries[index] for index in range(len(entries) - 1, -1, -1))
