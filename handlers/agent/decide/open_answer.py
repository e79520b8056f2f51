"""The answer that a loop continues: the model's last one, with the results of its tool calls so far. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import AssistantMessage, ToolResultMessage, UserMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT, WARNING

__all__ = ("OpenAnswer", "backwards", "is_cut", "open_answer", "wanted_calls")

_TOOL_STOPS = frozenset({"toolUse", "stop", "length"})


class OpenAnswer(NamedTuple):
    """A loop's last answer, and the results of the tools that it called."""

    position: int
    message: AssistantMessage
    turn_id: TurnId
    """the turn that its results belong to: the message's own, or one of the loop that adopted it"""
    results: tuple[tuple[int, ToolResultMessage], ...]
    """with their positions, in the order of the log"""

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
    def stamps(self) -> tuple[TurnId, ...]:
        """The turns that it and its results name."""
        named = (self.turn_id, *(result.turn_id for _, result in self.results))
        return tuple(turn_id for turn_id in named if turn_id is not None)

    @property
    def is_final(self) -> bool:
        """Whether all its tools have run, and each result says that no model call has to follow."""
        return not self.open_calls and all(result.terminate for _, result in self.results)

    def adopted(self, turn_id: TurnId) -> "OpenAnswer":
        """Move it to a turn of the loop that continues it. The loop that asked for it has counted its usage."""
        return self._replace(turn_id=turn_id, message=self.message.model_copy(update={"usage": None}))


def is_cut(message: AssistantMessage) -> bool:
    """Whether the answer failed and its loop goes on: the next turn answers the same prompts."""
    metadata = message.metadata or {}
    return bool(metadata.get(CUT) or metadata.get(AGAIN))


def wanted_calls(message: AssistantMessage) -> tuple[ToolCallBlock, ...]:
    """The tools that have to run for an answer: none if it failed, or stopped for another reason than a tool."""
    return tuple(message.tool_calls()) if message.stop_reason in _TOOL_STOPS else ()


def open_answer(path: Sequence[Envelope]) -> OpenAnswer | None:
    """Return the answer that the path continues; None if nothing has to follow the last one, or there is none."""
    results: list[tuple[int, ToolResultMessage]] = []
    cut: OpenAnswer | None = None
    for envelope in backwards(path):
        match envelope.message:
            case ToolResultMessage() as result:
                results.append((envelope.position, result))
            case UserMessage(turn_id=TurnId()) as note if WARNING not in (note.metadata or {}):
                return cut  # the note that a limit was reached ends a loop
            case AssistantMessage(turn_id=TurnId() as turn_id) as message:
                ids = {call.id for call in message.tool_calls()}
                own = tuple((at, result) for at, result in reversed(results) if result.tool_call_id in ids)
                answer = OpenAnswer(envelope.position, message, turn_id, own)
                if is_cut(message):
                    cut = cut or answer
                    continue
                goes_on = bool(answer.calls) and not answer.is_final
                if cut is not None:  # its model was asked with these results
                    return cut._replace(results=own) if goes_on else cut
                return answer if goes_on else None
            case AssistantMessage():
                return cut  # of no loop: imported, or a worker's note that the loop failed
            case _:
                pass
    return cut


def backwards(entries: Sequence[Envelope]) -> Iterator[Envelope]:
    """The entries from the newest to the oldest."""
    return (entries[index] for index in range(len(entries) - 1, -1, -1))
