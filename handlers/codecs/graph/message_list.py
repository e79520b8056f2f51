"""Two pure operations on the list of messages in a graph's state.

A log needs neither: a publish with a key is applied once, and deltas are not stored. Source: the code of the second
graph format.
"""

from collections.abc import Iterable, Sequence

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.tool_result import ToolResultMessage

__all__ = ("add_messages", "without_tools")


def add_messages(existing: Sequence[LlmMessage], new: Iterable[LlmMessage | Delta]) -> tuple[LlmMessage, ...]:
    """Return `existing` followed by the messages in `new`, without live deltas and without repeated ids.

    An id is repeated if an earlier message in `existing` or `new` has it. A message without an id is always added.
    """
    result = [*existing]
    known = {message.id for message in existing if message.id is not None}
    for message in new:
        if isinstance(message, Delta) or message.id in known:
            continue
        result.append(message)
        if message.id is not None:
            known.add(message.id)
    return tuple(result)


def without_tools(messages: Iterable[LlmMessage]) -> tuple[LlmMessage, ...]:
    """Remove messages with tool calls, and their results, if the next message after the results is an answer without
    calls.

    They are kept if the next message is not an answer, or if there is no next message.
    """
    kept: list[LlmMessage] = []
    pending: list[LlmMessage] = []
    for message in messages:
        match message:
            case AssistantMessage() if any(message.tool_calls()):
                pending.append(message)
            case ToolResultMessage():
                pending.append(message)
            case AssistantMessage():
                pending.clear()
                kept.append(message)
            case _:
                # Not an answer: the pending calls and results are kept, before this message.
                kept += pending
                pending.clear()
                kept.append(message)
    return (*kept, *pending)
