"""A session as a tree: its branches and labels, read from the log without changing it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from lanebus.bus.messages.context_entry import Label, LeafMove
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.build import LaneReader
from lanebus.handlers.context.errors import UnknownLeaf

__all__ = ("SessionTree", "read_tree")


@dataclass(frozen=True, slots=True)
class SessionTree:
    """Every entry of the LLM lane under the one that it continues; a leaf move is a step, and no entry of the tree."""

    session: str
    entries: Mapping[int, Envelope]
    """by position, in the order of the log"""
    parents: Mapping[int, int]
    """position → position of the entry that it continues; 0 is the place before the first"""
    leaf_after: Mapping[int, int]
    """position of any entry → where the session stood once it was there: at itself, but for leaf moves"""
    leaf: int
    """where the session goes on; 0 is the place before the first entry"""
    labels: Mapping[int, str]
    """position → the name that a user gave it, whichever branch it was given on"""

    @classmethod
    def of(cls, session: str, entries: Iterable[Envelope]) -> Self:
        """The tree of the LLM lane's entries, which come in the order of their positions."""
        known: dict[int, Envelope] = {}
        parents: dict[int, int] = {}
        labels: dict[int, str] = {}
        leaf = 0
        leaf_after = {0: 0}
        for envelope in entries:
            match envelope.message:
                case LeafMove(to=to):
                    leaf = leaf_after.get(to or 0, leaf)
                case message:
                    known[envelope.position], parents[envelope.position] = envelope, leaf
                    leaf = envelope.position
                    if isinstance(message, Label):
                        labels[message.target] = message.label or ""
            leaf_after[envelope.position] = leaf
        named = {target: label for target, label in labels.items() if label and target in known}
        return cls(
            session,
            MappingProxyType(known),
            MappingProxyType(parents),
            MappingProxyType(leaf_after),
            leaf,
            MappingProxyType(named),
        )

    def path(self, leaf: int | None = None) -> tuple[Envelope, ...]:
        """The entries from the first to `leaf`; None is where the session goes on, 0 gives none.

        Raises:
            UnknownLeaf: the tree has no such entry.
        """
        at = self._known(self.leaf if leaf is None else leaf)
        steps: list[Envelope] = []
        while at:  # to a smaller position each time
            steps.append(self.entries[at])
            at = self.parents[at]
        return tuple(reversed(steps))

    def children(self, position: int) -> tuple[int, ...]:
        """Positions of the entries that continue this one, oldest first; of 0, those that begin the session anew.

        Raises:
            UnknownLeaf: the tree has no such entry.
        """
        at = self._known(position)
        return tuple(child for child, parent in self.parents.items() if parent == at)

    def branches(self) -> tuple[int, ...]:
        """Positions of the entries that none continues, oldest first: each is the end of a branch."""
        continued = set(self.parents.values())
        return tuple(position for position in self.entries if position not in continued)

    def _known(self, position: int) -> int:
        if position not in self.leaf_after:
            raise UnknownLeaf(self.session, position)
        return self.leaf_after[position]


async def read_tree(session: LaneReader, *, at: int | None = None) -> SessionTree:
    """The session's tree as it is, or as it was once the entry at position `at` was there.

    Raises:
        StreamError, Unavailable: as reading the session does.
    """
    entries = [envelope async for envelope in session.read(lanes=frozenset({Lane.LLM}), until=at)]
    return SessionTree.of(session.id, entries)
