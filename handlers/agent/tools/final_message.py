"""The final message of a loop that ends with tool results instead of an answer of the model."""

from collections.abc import Sequence

from pydantic import JsonValue

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import TextBlock
from lanebus.bus.messages.llm import now_ms
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.agent.decide.open_answer import OpenAnswer
from lanebus.handlers.context.read_marks import DEFERRED, READ_UP_TO

__all__ = ("closing_message",)


def closing_message(answer: OpenAnswer, results: Sequence[ToolResultMessage]) -> AssistantMessage | None:
    """Return the final message of a loop whose tool results all have `terminate` set; None if the message would be
    blank.

    The message's text has one line for each result: the `terminate_message`, else the result's text. The message has no
    model and no usage. Its `READ_UP_TO` and `DEFERRED` metadata are those of `answer`; without these, `READ_UP_TO`
    is the position of `answer`.

    Args:
        answer: the answer that called the tools.
        results: the results of all calls of `answer`, in the order of the calls.

    Source: `terminate_message` of the `coding-agent` system.
    """
    texts = (result.terminate_message or result.text_content() for result in results)
    lines = [text for text in texts if text.strip()]
    if not lines:
        return None
    return AssistantMessage(
        content=(TextBlock(text="\n".join(lines)),),
        turn_id=answer.turn_id,
        metadata={READ_UP_TO: answer.position, **_reading_metadata(answer)},
        timestamp=now_ms(),
    )


def _reading_metadata(answer: OpenAnswer) -> dict[str, JsonValue]:
    """Return the metadata that records how far the answer's model had read."""
    metadata = answer.message.metadata or {}
    return {key: metadata[key] for key in (READ_UP_TO, DEFERRED) if key in metadata}
