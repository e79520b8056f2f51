"""Messages as the turns and loops in which they were said. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from lanebus.bus.messages.message import LlmMessage

__all__ = ("MessageTurn", "loops_of", "turns_of")


class MessageTurn(NamedTuple):
    """Messages that were said in one turn."""

    number: int
    """its index in its loop; of a message without a turn its place among the turns"""
    messages: tuple[LlmMessage, ...]


def turns_of(messages: Iterable[LlmMessage]) -> tuple[MessageTurn, ...]:
    """The turns of one loop's messages, in order. A message that was never stamped is a turn by itself."""
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
    """Loop id → what was said in the loop, the loops in their order. What is of no loop is in none."""
    loops: dict[str, list[LlmMessage]] = {}
    for message in messages:
        if message.turn_id is not None:
            loops.setdefault(message.turn_id.loop_id, []).append(message)
    return {loop: tuple(said) for loop, said in loops.items()}
