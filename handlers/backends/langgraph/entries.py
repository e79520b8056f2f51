"""The entries that hold a thread: extension messages of kinds `store.langgraph.…`."""

from typing import Annotated, Final

from pydantic import Field, JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.events.event import Positions
from lanebus.bus.messages.extension import ExtensionData, ExtensionMessage

__all__ = (
    "KINDS",
    "CheckpointStored",
    "CheckpointsDeleted",
    "MessagesShown",
    "Packed",
    "ThreadEntry",
    "ThreadNamed",
    "ValueStored",
    "Version",
    "Write",
    "WritesStored",
    "read_entry",
)

Version = str | int | float
"""The version of a channel, as LangGraph counts it."""

Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Packed(Wire):
    """A value that a serializer wrote."""

    type: str
    """the serializer's name for the form of the bytes"""
    value: JsonValue
    """the bytes: base64, or their SHA-256 in the media store"""


class ValueStored(ExtensionData):
    """The value of a channel at a version. A list refers to an earlier version for its first elements."""

    KIND = "store.langgraph.value"
    namespace: str
    channel: str
    version: Version
    packed: Packed
    """the value; of a list, its elements from `keep` on"""
    after: Version | None = None
    """the version that the list shares its first elements with; None if `packed` is the whole value"""
    keep: Annotated[int, Field(ge=0)] = 0
    """number of elements that the list shares with the version `after`"""
    digests: Texts | None = None
    """one digest for each element in `packed`; None if the value is no list"""


class CheckpointStored(ExtensionData):
    """A checkpoint without its values."""

    KIND = "store.langgraph.checkpoint"
    thread: str
    namespace: str
    id: str
    parent: str | None = None
    """id of the checkpoint that this one follows"""
    checkpoint: Packed
    metadata: Packed


class Write(Wire):
    """One write of a task."""

    index: int
    """number of the write among those of its task; negative for errors, interrupts and the like"""
    channel: str
    packed: Packed


class WritesStored(ExtensionData):
    """Writes of one task that no checkpoint includes yet."""

    KIND = "store.langgraph.writes"
    namespace: str
    checkpoint: str
    """id of the checkpoint that the task ran on"""
    task: str
    path: str = ""
    writes: Annotated[tuple[Write, ...], Field(strict=False)]


class CheckpointsDeleted(ExtensionData):
    """Checkpoints and their writes were deleted."""

    KIND = "store.langgraph.deleted"
    checkpoints: Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...] | None, Field(strict=False)] = (
        None
    )
    """namespace and id of each; None means the whole thread"""


class ThreadNamed(ExtensionData):
    """The thread of this session, if the session's id is a hash of it. The first entry of a copied thread."""

    KIND = "store.langgraph.thread"
    thread: str


class MessagesShown(ExtensionData):
    """The entries before this one, in the LLM lane, show messages of the graph's state."""

    KIND = "store.langgraph.shown"
    messages: Texts
    """one digest for each message, in order"""
    path: str | None = None
    """digest of the messages that a leaf move before these messages went to; None if there was no leaf move"""
    pruned: Positions | None = None
    """positions that a prune before these messages left out; None if there was no prune"""
    counted: Texts = ()
    """ids of those messages that report their usage"""


ThreadEntry = ValueStored | CheckpointStored | WritesStored | CheckpointsDeleted | ThreadNamed | MessagesShown

_CLASSES: Final = {
    each.KIND: each
    for each in (ValueStored, CheckpointStored, WritesStored, CheckpointsDeleted, ThreadNamed, MessagesShown)
}

KINDS = frozenset(_CLASSES)


def read_entry(message: object) -> ThreadEntry | None:
    """Return what an extension message holds; None if it is of another kind, or unreadable."""
    if not isinstance(message, ExtensionMessage) or message.kind not in _CLASSES:
        return None
    try:
        return _CLASSES[message.kind].read(message.data)
    except DecodeError:
        return None
