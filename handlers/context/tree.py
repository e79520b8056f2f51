"""Pure functions that find entries and paths in a session's tree. Entries are of the LLM lane, in order of position.

No entry names its parent. An entry continues the previous entry; after a leaf move, it continues the move's target. So
each step towards the root leads to a smaller position, and the tree has no cycle.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from lanebus.bus.messages.context_entry import LeafMove
from lanebus.bus.wire.envelope import Envelope

__all__ = ("find", "path_to_leaf")


def find(entries: Sequence[Envelope], position: int) -> int | None:
    """Return the index of the entry at this position; None if `entries` has no such entry."""
    index = bisect_left(entries, position, key=_position)
    return index if index < len(entries) and entries[index].position == position else None


def path_to_leaf(entries: Sequence[Envelope]) -> list[Envelope]:
    """Return the entries from the root to the leaf. Leaf moves steer the path but are not part of it.

    If the target of a leaf move is itself a leaf move, the path continues at the target of that second move. A leaf
    move whose target is not an earlier entry has no effect.
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
