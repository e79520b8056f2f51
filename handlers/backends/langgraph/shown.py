"""Which messages of a graph's state the LLM lane shows, and how the lane gets to another list of messages.

The lane is a tree: new messages follow the leaf. If the state went back to an earlier list, the leaf moves there. If
messages were removed from the list, a prune leaves them out.
"""

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from lanebus.handlers.backends.langgraph.entries import MessagesShown

__all__ = ("ShownGraph", "ShownStep", "step_to")


@dataclass(frozen=True, slots=True)
class Node:
    """A message that is shown, after others."""

    message: str
    """digest of the message"""
    entry: int
    """position of the message"""
    leaf: int
    """position that the leaf moves to, to show the messages up to this one"""
    path: str
    """digest of the messages up to this one"""
    parent: "Node | None"


@dataclass(slots=True)
class ShownGraph:
    """What the LLM lane shows, and showed before."""

    leaf: Node | None = None
    """the last message that is shown; None if none is"""
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    """digest of messages → the last of them, for each list that was shown"""
    counted: set[str] = field(default_factory=set[str])
    """ids of the messages whose usage is in the log"""

    def path(self) -> list[Node]:
        """Return what is shown, in order."""
        return [*self._back()][::-1]

    def add(self, position: int, entry: MessagesShown) -> None:
        """Fold in an entry at a position. The entries of its messages come directly before it."""
        first = position - len(entry.messages)
        if entry.pruned is not None:
            kept = [node for node in self.path() if node.entry not in entry.pruned]
            self.leaf = None
            for node in kept:
                self.leaf = self._node(node.message, node.entry, first - 1)
            self._keep()
        elif entry.path is not None:
            self.leaf = self.nodes.get(entry.path)
        for index, message in enumerate(entry.messages):
            self.leaf = self._node(message, first + index, first + index)
            self._keep()
        self.counted.update(entry.counted)

    def clear(self) -> None:
        """Show nothing. Usage that was counted stays counted."""
        self.leaf = None
        self.nodes.clear()

    def _back(self) -> Iterator[Node]:
        node = self.leaf
        while node is not None:
            yield node
            node = node.parent

    def _node(self, message: str, entry: int, leaf: int) -> Node:
        path = _extended(self.leaf.path if self.leaf else "", message)
        return Node(message, entry, leaf, path, self.leaf)

    def _keep(self) -> None:
        if self.leaf is not None:
            self.nodes[self.leaf.path] = self.leaf


class ShownStep(NamedTuple):
    """How the lane gets to a list of messages."""

    start: int
    """number of first messages that need not be appended"""
    pruned: tuple[int, ...] | None = None
    """positions to prune first; None prunes nothing"""
    target: Node | None = None
    """the message to move the leaf to first. If it is None and `is_moved`, the leaf moves before the first message"""
    is_moved: bool = False


def step_to(shown: ShownGraph, messages: Sequence[str]) -> ShownStep:
    """Return how to show a list of messages. Pure.

    Args:
        shown: what is shown.
        messages: a digest of each message.
    """
    start, target, path = 0, None, ""
    for index, message in enumerate(messages):
        path = _extended(path, message)
        if (node := shown.nodes.get(path)) is not None:
            start, target = index + 1, node
    if target is shown.leaf:
        return ShownStep(start)
    current = shown.path()
    kept, gone = 0, list[int]()
    for node in current:
        if kept < len(messages) and messages[kept] == node.message:
            kept += 1
        else:
            gone.append(node.entry)
    # A message that is shown already and would be appended again has moved: then the rest is shown anew.
    if kept > start and not {node.message for node in current}.intersection(messages[kept:]):
        return ShownStep(kept, pruned=tuple(gone))
    return ShownStep(start, target=target, is_moved=True)


def _extended(path: str, message: str) -> str:
    return urlsafe_b64encode(blake2b(f"{path} {message}".encode(), digest_size=15).digest()).decode()
