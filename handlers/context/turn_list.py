"""Group messages by turns and loops. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from lanebus.bus.errors import require_instance
from lanebus.bus.messages.llm import LlmMessage

__all__ = ("MessageTurn", "loops_of", "turns_of")

_MESSAGES = "pass a list of messages, such as `context.messages`"


class MessageTurn(NamedTuple):
    """The messages of one turn."""

    number: int
    """Index of the turn in its loop, or the index of this item in the list if the message has no turn id."""
    messages: tuple[LlmMessage, ...]


def turns_of(messages: Iterable[LlmMessage]) -> tuple[MessageTurn, ...]:
    """Return the turns of one loop's messages, in order. Each message without a turn id is a turn of its own."""
    turns: list[MessageTurn] = []
    is_stamped = False
    for message in messages:
        stamp = message.turn_id
        if stamp and is_stamped and turns[-1].number == stamp.turn_index:
            turns[-1] = MessageTurn(turns[-1].number, (*turns[-1].messages, message))
        else:
            turns.append(MessageTurn(stamp.turn_index if stamp else len(turns), (message,)))
        is_stamped = stamp is not None
    return tuple(turns)


def loops_of(messages: Iterable[LlmMessage]) -> dict[str, tuple[LlmMessage, ...]]:
    """Return the messages of each loop, by loop id and in the order of the loops. Messages without a loop are left
    out."""
    require_instance("messages", messages, Iterable, _MESSAGES)
    loops: dict[str, list[LlmMessage]] = {}
    for message in messages:
        require_instance("messages", message, LlmMessage, _MESSAGES)
        if message.turn_id is not None:
            loops.setdefault(message.turn_id.loop_id, []).append(message)
    return {loop: tuple(grouped) for loop, grouped in loops.items()}
