"""Read marks: how far a model had read when it answered, and which messages the model was not shown. Pure."""

from collections.abc import Sequence

from lanebus.bus.messages import AssistantMessage, LlmMessage, UserMessage
from lanebus.bus.wire import Envelope

READ_UP_TO = "lanebus.seen"
"""Key in the private metadata of an answer, and of the note that a loop writes when it ends.

The value is a position: the model has read, or the loop has handled, all entries up to it.

A user message that arrives while the model answers is before the answer in the log. Without this key, the message would
look answered.
"""

DEFERRED = "lanebus.held"
"""Key in the private metadata of an answer, and of the note that a loop writes when it ends.

The value lists positions: messages up to the position in `READ_UP_TO` that the model was nevertheless not shown.
"""


def read_position(envelope: Envelope) -> int | None:
    """Return the position up to which this answer or note says that all entries were read or handled.

    For an answer that does not say so, return its own position. Return None for an entry that is neither an answer nor
    a note that ends a loop.
    """
    message = envelope.message
    if not isinstance(message, AssistantMessage | UserMessage):
        return None
    seen = (message.metadata or {}).get(READ_UP_TO)
    if type(seen) is int and (isinstance(message, AssistantMessage) or message.turn_id is not None):
        return seen
    return envelope.position if isinstance(message, AssistantMessage) else None


def deferred_positions(envelope: Envelope) -> frozenset[int]:
    """Return the positions of the messages up to the entry's read position that the model was not shown."""
    message = envelope.message
    held = (message.metadata or {}).get(DEFERRED) if isinstance(message, LlmMessage) else None
    return frozenset(each for each in held if type(each) is int) if isinstance(held, list) else frozenset()


def is_mark(message: AssistantMessage) -> bool:
    """Return whether an answer is only a read mark: it records that a loop was aborted, failed or is redriven, and no
    model was called for it."""
    is_marked = message.is_failed and READ_UP_TO in (message.metadata or {})
    return is_marked and not message.content and message.usage is None and not message.model and not message.provider


def left_over(path: Sequence[Envelope], reader: Envelope) -> list[Envelope]:
    """Return the user messages before `reader` that were unread when the model wrote `reader`, newest first.

    An imported reader has read only imported messages, and any other reader has left over only other messages.

    The search goes back to the position up to which the model had read, or further to the oldest message that it was
    not shown.

    Args:
        path: the path before `reader`.
        reader: an answer, or a note that ends a loop. For other entries, the result is empty.
    """
    seen = read_position(reader)
    if seen is None:
        return []
    held = deferred_positions(reader)
    first = min(held, default=reader.position)
    found: list[Envelope] = []
    for index in range(len(path) - 1, -1, -1):
        envelope = path[index]
        # An overlay takes the place of older entries, but has its own, later position. So positions may not be sorted.
        if envelope.position <= seen and envelope.position < first:
            break
        is_left = seen < envelope.position < reader.position or envelope.position in held
        if is_left and is_prompt(envelope) and envelope.is_imported == reader.is_imported:
            found.append(envelope)
    return found


def is_prompt(envelope: Envelope) -> bool:
    """Return whether the entry is a message that a user sent, and not a loop's own note to its model."""
    return isinstance(envelope.message, UserMessage) and envelope.message.turn_id is None
