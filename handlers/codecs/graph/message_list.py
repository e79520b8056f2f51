"""The list of messages in a graph's state. Pure.

A log does not need this: a publish with a key is applied once, and deltas are not stored. Source: seed 003's code.
"""

from collections.abc import Iterable, Sequence

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage

__all__ = ("add_messages", "without_tools")


def add_messages(existing: Sequence[LlmMessage], new: Iterable[LlmMessage | Delta]) -> tuple[LlmMessage, ...]:
    """Return the list with the new messages. Live deltas are left out, and so are messages whose id is already in the
    list or earlier in `new`.

    A message without an id is always new.
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
    """Return the messages without finished tool calls: calls and results are dropped once a final answer follows them.

    Calls without such an answer stay, with all their results.
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
                # Another message came in between; the pending ones belong before it.
                kept += pending
                pending.clear()
                kept.append(message)
    return (*kept, *pending)
