"""The list of messages in a graph's state. Pure: the same lists give the same list.

A log needs none of this: a publish with a key is added once, and deltas never enter a lane. Source: seed 003's code.
"""

from collections.abc import Iterable, Sequence

from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.message import AssistantMessage, LlmMessage, ToolResultMessage

__all__ = ("add_messages", "without_tools")


def add_messages(said: Sequence[LlmMessage], new: Iterable[LlmMessage | Delta]) -> tuple[LlmMessage, ...]:
    """The messages with the new ones: no live delta, and none whose id is there already, in the list or in the batch.

    A message without an id is always new.
    """
    result = [*said]
    known = {message.id for message in said if message.id is not None}
    for message in new:
        if isinstance(message, Delta) or message.id in known:
            continue
        result.append(message)
        if message.id is not None:
            known.add(message.id)
    return tuple(result)


def without_tools(messages: Iterable[LlmMessage]) -> tuple[LlmMessage, ...]:
    """The messages without the tool calls that are over: the calling answers and their results, once a last one came.

    Calls that nothing has answered in words yet stay, with all results that they have.
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
                # Somebody spoke in between: what is pending has its place before that.
                kept += pending
                pending.clear()
                kept.append(message)
    return (*kept, *pending)
