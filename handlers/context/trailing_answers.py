"""Answers that are of no use to the next request, left out of a copy. Pure: the log keeps them.

Source: the request preparation of the system that seed 000 documents.
"""

from collections.abc import Sequence

from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.message import AssistantMessage, LlmMessage

__all__ = ("without_empty_answers", "without_unusable_end")


def without_unusable_end(messages: Sequence[LlmMessage]) -> tuple[LlmMessage, ...]:
    """The messages up to the last that a model can go on from: at the end no answer that was cut, calls or is blank.

    An answer that calls is one whose results never came: they would stand behind it.
    """
    end = len(messages)
    while end and isinstance(last := messages[end - 1], AssistantMessage) and not _is_usable(last):
        end -= 1
    return tuple(messages[:end])


def without_empty_answers(messages: Sequence[LlmMessage]) -> tuple[LlmMessage, ...]:
    """The messages but for answers that hold no text, no call and no thinking."""
    return tuple(message for message in messages if not isinstance(message, AssistantMessage) or _says(message))


def _is_usable(answer: AssistantMessage) -> bool:
    is_calling = any(True for _ in answer.tool_calls())
    return answer.stop_reason == "stop" and not is_calling and bool(answer.text_content().strip())


def _says(answer: AssistantMessage) -> bool:
    spoken = (ToolCallBlock, ThinkingBlock, RedactedThinkingBlock)
    return bool(answer.text_content()) or any(isinstance(block, spoken) for block in answer.content)
