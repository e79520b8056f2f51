"""What can be wrong with the tree of a transcript."""

from lanebus.bus.errors import MessageError

__all__ = ("CyclicTree", "UnknownEntry")


class CyclicTree(MessageError):
    """An entry is among those that come before it: its parents lead back to it. Fields: `entry`, its id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the parents of entry {entry[:80]!r} lead back to it: mend the transcript")
        self.entry = entry


class UnknownEntry(MessageError):
    """No entry of the transcript has this id. Fields: `entry`, the id."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the transcript has no entry {entry[:80]!r}")
        self.entry = entry
