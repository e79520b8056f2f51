"""The tree of a session. Pure, over the LLM lane's entries in the order of their positions.

Nothing in an entry names its parent. It follows the leaf, which is the entry before it unless that is a leaf move, and
then it is where that one led. So every step towards the root goes to a smaller position, and no tree can have a cycle.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from lanebus.bus.messages.context_entry import LeafMove
from lanebus.bus.wire.envelope import Envelope

__all__ = ("find", "path_to_leaf")


def find(entries: Sequence[Envelope], position: int) -> int | None:
    """Where in `entries` the one of this position is; None if it is of the other lane or not there."""
    index = bisect_left(entries, position, key=_position)
    return index if index < len(entries) and entries[index].position == position else None


def path_to_leaf(entries: Sequence[Envelope]) -> list[Envelope]:
    """The entries from the root to the leaf; leaf moves lead along the path and are not on it.

    A move to a leaf move leads where that one led. A move to an entry that is not before it moves nothing.
    """
    return list(_towards_root(entries))[::-1]


def _towards_root(entries: Sequence[Envelope]) -> Iterator[Envelope]:
    index = len(entries) - 1
    while index >= 0:
        envelope = entries[index]
        move = envelope.message
        if not isinstance(move, LeafMove):
            yield envelope
        elif move.to is None:
            return
        elif move.to < envelope.position and (target := find(entries, move.to)) is not None:
            index = target
            continue
        index -= 1


def _position(envelope: Envelope) -> int:
    return envelope.position
