"""Leave out answers that are useless in the next request. Pure: the log keeps these answers.

Source: the documentation of the `coding-agent` system, on how a request is prepared.
"""

from collections.abc import Sequence

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import RedactedThinkingBlock, ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.llm import LlmMessage

__all__ = ("without_empty_answers", "without_unusable_end")


def without_unusable_end(messages: Sequence[LlmMessage]) -> tuple[LlmMessage, ...]:
    """Return the messages up to the last message that a model can continue from.

    An answer at the end is dropped if it was cut short, calls tools or is blank. Its calls have no results, because
    results would follow the answer.
    """
    end = len(messages)
    while end and isinstance(last := messages[end - 1], AssistantMessage) and not _is_usable(last):
        end -= 1
    return tuple(messages[:end])


def without_empty_answers(messages: Sequence[LlmMessage]) -> tuple[LlmMessage, ...]:
    """Return the messages without answers that have no text, no call and no thinking."""
    return tuple(message for message in messages if not isinstance(message, AssistantMessage) or _has_content(message))


def _is_usable(answer: AssistantMessage) -> bool:
    is_calling = any(True for _ in answer.tool_calls())
    return answer.stop_reason == "stop" and not is_calling and bool(answer.text_content().strip())


def _has_content(answer: AssistantMessage) -> bool:
    kinds = (ToolCallBlock, ThinkingBlock, RedactedThinkingBlock)
    return bool(answer.text_content()) or any(isinstance(block, kinds) for block in answer.content)
