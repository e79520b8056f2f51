"""Whom an answer was made without: its marks tell how far its model had read, and what it was not shown. Pure."""

from collections.abc import Sequence

from lanebus.bus.messages.message import AssistantMessage, LlmMessage, UserMessage
from lanebus.bus.wire.envelope import Envelope

__all__ = ("DEFERRED", "READ_UP_TO", "deferred_positions", "is_prompt", "left_over", "read_position")

READ_UP_TO = "lanebus.seen"
"""in the private metadata of an answer, and of the note that ends a loop: the position up to which all is read or done
with. Who spoke while an answer was thought stands before it in the log and was not answered by it; only this tells"""

DEFERRED = "lanebus.held"
"""in that of an answer: positions up to `READ_UP_TO` of messages that its model was not shown"""


def read_position(envelope: Envelope) -> int | None:
    """Up to where all is read once this entry is there; None where it is no answer, and no note that ends a loop."""
    message = envelope.message
    if not isinstance(message, AssistantMessage | UserMessage):
        return None
    seen = (message.metadata or {}).get(READ_UP_TO)
    if type(seen) is int and (isinstance(message, AssistantMessage) or message.turn_id is not None):
        return seen
    return envelope.position if isinstance(message, AssistantMessage) else None


def deferred_positions(envelope: Envelope) -> frozenset[int]:
    """Positions of what an answer's model was not shown though it stands before `READ_UP_TO`."""
    message = envelope.message
    held = (message.metadata or {}).get(DEFERRED) if isinstance(message, LlmMessage) else None
    return frozenset(each for each in held if type(each) is int) if isinstance(held, list) else frozenset()


def left_over(path: Sequence[Envelope], reader: Envelope) -> list[Envelope]:
    """What users said before an answer that was made without it, the newest first.

    Looks back no further than to what the answer's model had read.
    """
    seen = read_position(reader)
    if seen is None:
        return []
    held = deferred_positions(reader)
    first = min(held, default=reader.position)
    found: list[Envelope] = []
    for index in range(len(path) - 1, -1, -1):
        envelope = path[index]
        # What was put in the place of older entries stands there under a position of its own.
        if envelope.position <= seen and envelope.position < first:
            break
        is_left = seen < envelope.position < reader.position or envelope.position in held
        if is_left and is_prompt(envelope):
            found.append(envelope)
    return found


def is_prompt(envelope: Envelope) -> bool:
    """A user said it: it is no note of a loop's own to its model."""
    return isinstance(envelope.message, UserMessage) and envelope.message.turn_id is None
