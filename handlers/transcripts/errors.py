"""Errors in the tree of a transcript's entries."""

from lanebus.bus.errors import MessageError

__all__ = ("CyclicTree", "UnknownEntry")


class CyclicTree(MessageError):
    """The parents of an entry lead back to the entry itself. Fields: `entry`, the entry's id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the parents of entry {entry[:80]!r} lead back to it", "correct its parent in the transcript")
        self.entry = entry


class UnknownEntry(MessageError):
    """No entry of the transcript has this id. Fields: `entry`, the id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the transcript has no entry {entry[:80]!r}")
        self.entry = entry
