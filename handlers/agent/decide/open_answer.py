"""The answer that a loop continues: the model's last answer with the tool results so far. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import ToolCallBlock
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.bus.messages.turn import TurnId
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.agent.metadata_keys import AGAIN, CUT, IMPORTED_CALL, WARNING

__all__ = ("OpenAnswer", "is_cut", "open_answer", "wanted_calls")

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
