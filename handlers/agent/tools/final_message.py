"""What is said in the model's place where its tools end the loop."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.message import AssistantMessage, ToolResultMessage, now_ms
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.agent.metadata_keys import DEFERRED, READ_UP_TO

__all__ = ("closing_message",)


def closing_message(answer: OpenAnswer, results: Sequence[ToolResultMessage]) -> AssistantMessage | None:
    """The last word of a loop whose tools all said that no model call has to follow; None where none of them says one.

    Each tool's word, else the text of its result, a line each; what is blank is left out. No model spoke it, so it
    names none and cost nothing, and read no further than the answer that called the tools.

    Args:
        answer: the one that called the tools.
        results: of all its calls, in their order.

    Source: seed 000, `terminate_message`.
    """
    told = (result.terminate_message or result.text_content() for result in results)
    words = [word for word in told if word.strip()]
    if not words:
        return None
    return AssistantMessage(
        content=(TextBlock(text="\n".join(words)),),
        turn_id=answer.turn_id,
        metadata={READ_UP_TO: answer.position, **_reading_metadata(answer)},
        timestamp=now_ms(),
    )


def _reading_metadata(answer: OpenAnswer) -> dict[str, JsonValue]:
    """How far the answer's model had read."""
    metadata = answer.message.metadata or {}
    return {key: metadata[key] for key in (READ_UP_TO, DEFERRED) if key in metadata}
