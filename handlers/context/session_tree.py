"""A session as a tree: its branches and labels, read from the log. The log is not changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from lanebus.bus.errors import require_count
from lanebus.bus.messages.context_entry import Label, LeafMove
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import require_session
from lanebus.bus.wire.envelope import Envelope
from lanebus.handlers.context.build import LaneReader, require_position
from lanebus.handlers.context.errors import UnknownLeaf

__all__ = ("SessionTree", "read_tree")


@dataclass(frozen=True, slots=True)
class SessionTree:
    """The entries of the LLM lane as a tree, without leaf moves. An entry's parent is the entry that it continues."""

    session: str
    entries: Mapping[int, Envelope]
    """Position → entry, in log order."""
    parents: Mapping[int, int]
    """Position of an entry → position of its parent; 0 is the root, before the first entry."""
    leaf_after: Mapping[int, int]
    """Position of any entry → position of the leaf after that entry: the entry itself, or the target of a leaf move."""
    leaf: int
    """Position of the current leaf, which the next entry continues; 0 is the root."""
    labels: Mapping[int, str]
    """Position of an entry → its label. The entry may be on any branch."""

    @classmethod
    def of(cls, session: str, entries: Iterable[Envelope]) -> Self:
        """Build the tree of the LLM lane's entries.

        Args:
            session: the session's id.
            entries: the entries, in order of position.
        """
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
        """Return the entries from the root to `leaf`. None means the session's current leaf; 0 returns no entries.

        Raises:
            UnknownLeaf: the tree has no entry at `leaf`.
        """
        at = self._known(self.leaf if leaf is None else leaf)
        steps: list[Envelope] = []
        while at:  # positions only get smaller
            steps.append(self.entries[at])
            at = self.parents[at]
        return tuple(reversed(steps))

    def children(self, position: int) -> tuple[int, ...]:
        """Return the positions of the entries that continue the entry at `position`, oldest first. 0 means the root.

        Raises:
            UnknownLeaf: the tree has no entry at `position`.
        """
        at = self._known(position)
        return tuple(child for child, parent in self.parents.items() if parent == at)

    def branches(self) -> tuple[int, ...]:
        """Return the positions of the entries that end a branch: no other entry continues them. Oldest first."""
        continued = set(self.parents.values())
        return tuple(position for position in self.entries if position not in continued)

    def _known(self, position: int) -> int:
        if position not in self.leaf_after:
            raise UnknownLeaf(self.session, position)
        return self.leaf_after[position]


async def read_tree(session: LaneReader, *, at: int | None = None) -> SessionTree:
    """Read the session's tree.

    Args:
        session: the session to read.
        at: position of the last entry to read, in either lane; None reads to the end.

    Raises:
        NoSuchPosition: `at` is after the session's last position.
        StreamError: the session cannot be read: it was erased, or entries are missing.
        Unavailable: the server or the archive cannot be reached.
    """
    if not hasattr(session, "id"):
        require_session(session)
    require_count("at", at, is_optional=True)
    entries = [envelope async for envelope in session.read(lanes=frozenset({Lane.LLM}), until=at)]
    await require_position(session, at, entries[-1].position if entries else 0)
    return SessionTree.of(session.id, entries)
