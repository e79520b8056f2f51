"""The state of a thread, folded from its session: checkpoints, values and pending writes, all still packed."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.backends.langgraph.entries import (
    CheckpointsDeleted,
    CheckpointStored,
    MessagesShown,
    Packed,
    ThreadEntry,
    ThreadNamed,
    ValueStored,
    Version,
    Write,
    WritesStored,
    read_entry,
)
from lanebus.handlers.backends.langgraph.shown import ShownGraph

__all__ = ("Namespace", "Newest", "PendingWrite", "Thread", "Value", "fold", "fold_imported")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a channel at a version."""

    packed: Packed
    base: "Value | None" = None
    """the earlier value of a list that it shares its first elements with"""
    keep: int = 0
    """number of shared elements"""
    is_list: bool = False

    def parts(self) -> Iterator[tuple[Packed, int | None]]:
        """Yield the lists that a list consists of, the last first, each with the number of its elements to take.

        None means all elements.
        """
        value: Value | None = self
        end: int | None = None
        while value is not None:
            taken = None if end is None else max(end - value.keep, 0)
            if taken != 0:
                yield value.packed, taken
            end = value.keep if end is None else min(end, value.keep)
            value = value.base if end else None


class Newest(NamedTuple):
    """The newest version of a list, with a digest of each element."""

    version: Version
    digests: list[str]


class PendingWrite(NamedTuple):
    """One write with the path of its task."""

    path: str
    write: Write


@dataclass(slots=True)
class Namespace:
    """What a thread holds in one checkpoint namespace."""

    checkpoints: dict[str, CheckpointStored] = field(default_factory=dict[str, CheckpointStored])
    writes: dict[str, dict[tuple[str, int], PendingWrite]] = field(
        default_factory=dict[str, dict[tuple[str, int], PendingWrite]]
    )
    """checkpoint id → (task, index) → write"""
    values: dict[tuple[str, Version], Value] = field(default_factory=dict[tuple[str, Version], Value])
    newest: dict[str, Newest] = field(default_factory=dict[str, Newest])
    """channel → its newest list; a list is stored as what follows the elements that it shares with this one"""
    latest: str = ""
    """the greatest id of a checkpoint; empty if there is none"""

    def add(self, entry: CheckpointStored) -> None:
        """Add a checkpoint."""
        self.checkpoints[entry.id] = entry
        self.latest = max(self.latest, entry.id)

    def remove(self, checkpoint: str) -> None:
        """Remove a checkpoint and its writes, if they are there."""
        self.checkpoints.pop(checkpoint, None)
        self.writes.pop(checkpoint, None)
        if checkpoint == self.latest:
            self.latest = max(self.checkpoints, default="")


Namespaces = dict[str, Namespace]
"""Name of a checkpoint namespace → what it holds."""


@dataclass(slots=True)
class Thread:
    """What a thread holds."""

    name: str | None = None
    """the thread's id; None until it has a checkpoint"""
    namespaces: Namespaces = field(default_factory=dict[str, Namespace])
    imported: Namespaces = field(default_factory=dict[str, Namespace])
    """what an import appended. It is shown as data, and never mixed with `namespaces`: a checkpoint of a graph finds no
    imported value, write or version"""
    shown: ShownGraph = field(default_factory=ShownGraph)

    @property
    def is_empty(self) -> bool:
        """Whether the thread holds nothing."""
        return not self.namespaces and not self.imported

    def namespace(self, name: str) -> Namespace:
        """Return a namespace; an empty one if nothing is stored in it. Nothing is changed."""
        return self.namespaces.get(name) or Namespace()


def fold(thread: Thread, cursor: Cursor, message: Publishable) -> None:
    """Add one entry of the session. Unknown and unreadable entries change nothing."""
    entry = read_entry(message)
    match entry:
        case CheckpointStored() if thread.name is None:
            thread.name = entry.thread
        case CheckpointsDeleted():
            _delete(thread.imported, entry)
            if entry.checkpoints is None:
                thread.shown.clear()
        case MessagesShown():
            thread.shown.add(cursor.position, entry)
        case ThreadNamed():
            thread.name = entry.thread
        case _:
            pass
    _store(thread.namespaces, entry)


def fold_imported(thread: Thread, cursor: Cursor, message: Publishable) -> None:
    """Add one imported entry, as data. It changes neither the thread's own checkpoints, nor its name, nor what the LLM
    lane shows."""
    del cursor
    _store(thread.imported, read_entry(message))


def _store(spaces: Namespaces, entry: ThreadEntry | None) -> None:
    match entry:
        case ValueStored():
            _add_value(spaces.setdefault(entry.namespace, Namespace()), entry)
        case CheckpointStored():
            spaces.setdefault(entry.namespace, Namespace()).add(entry)
        case WritesStored():
            writes = spaces.setdefault(entry.namespace, Namespace()).writes.setdefault(entry.checkpoint, {})
            writes |= {(entry.task, write.index): PendingWrite(entry.path, write) for write in entry.writes}
        case CheckpointsDeleted():
            _delete(spaces, entry)
        case _:
            pass


def _add_value(space: Namespace, entry: ValueStored) -> None:
    is_list = entry.digests is not None
    base = None if entry.after is None else space.values.get((entry.channel, entry.after))
    newest = space.newest.get(entry.channel)
    space.values[entry.channel, entry.version] = Value(entry.packed, base, entry.keep if base else 0, is_list)
    space.newest.pop(entry.channel, None)
    if entry.digests is None:
        return
    if entry.after is None:
        space.newest[entry.channel] = Newest(entry.version, [*entry.digests])
    elif newest is not None and newest.version == entry.after:
        space.newest[entry.channel] = Newest(entry.version, [*newest.digests[: entry.keep], *entry.digests])


def _delete(spaces: Namespaces, entry: CheckpointsDeleted) -> None:
    if entry.checkpoints is None:
        spaces.clear()
        return
    for name, checkpoint in entry.checkpoints:
        space = spaces.get(name) or Namespace()
        space.remove(checkpoint)
        if not space.checkpoints and not space.writes:
            spaces.pop(name, None)
