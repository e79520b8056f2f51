"""The entries that a task is folded from: a save, and a deletion."""

from typing import ClassVar

from a2a.types import Message as A2aMessage
from a2a.types import StreamResponse, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.utils.proto_utils import to_stream_response
from pydantic import JsonValue, ValidationError

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.extension import ExtensionData
from lanebus.handlers.backends.a2a.protobuf import from_json, to_json
from lanebus.handlers.backends.a2a.task_change import Kept, applied, change, merged

__all__ = ("A2aEvent", "SavedChange", "TaskDeleted", "TaskSaved", "change_of", "read_change", "write_change")


A2aEvent = A2aMessage | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


class SavedChange(Wire):
    """How one save changed a task, and the event of the save."""

    event: JsonValue = None
    """the event as A2A's JSON of a `StreamResponse`; None if there is none, or if it is the whole task"""
    is_task: bool = False
    """whether the event is the whole task, as it is after the change"""
    kept: Kept | None = None
    """what the task keeps; None if the event alone changes the task"""
    rest: JsonValue = None
    """the other fields of the task, as A2A's JSON"""

    def apply(self, task: Task | None) -> Task:
        """Return the task after the change.

        Raises:
            DecodeError: the entry is damaged, or an entry before it is missing.
        """
        if self.kept is not None:
            return merged(task, self.kept, from_json(self.rest, Task()))
        event = self.read_event(None)
        if task is None or not isinstance(event, TaskStatusUpdateEvent | TaskArtifactUpdateEvent):
            raise DecodeError("change", "an event without a task to change")
        return applied(task, event)

    def read_event(self, task: Task | None) -> A2aEvent | None:
        """Return the event of the save; None if the save had none.

        Args:
            task: the task after the change, which the event may be.

        Raises:
            DecodeError: the entry is damaged.
        """
        if self.is_task:
            return task
        if self.event is None:
            return None
        response = from_json(self.event, StreamResponse())
        name = response.WhichOneof("payload")
        if name is None:
            raise DecodeError("change.event", "an event of no known kind")
        event: A2aEvent = getattr(response, name)
        return event


class TaskSaved(ExtensionData):
    """A task was saved. The version of the task is the position of this entry."""

    KIND: ClassVar[str] = "store.a2a.saved"
    owner: str
    change: SavedChange | None = None
    """the change; None if it is in the media store"""
    stored: JsonValue = None
    """the reference to a change in the media store, as `store_value` returns it"""


class TaskDeleted(ExtensionData):
    """A task was deleted. Its messages stay in the session until it is erased."""

    KIND: ClassVar[str] = "store.a2a.deleted"


def change_of(old: Task | None, new: Task, event: A2aEvent | None) -> SavedChange:
    """Return the change between two versions of a task. It has only what is new.

    Raises:
        InvalidArgument: the task has a value that JSON has not, such as NaN.
    """
    is_task = isinstance(event, Task) and event == new
    said = None if event is None or is_task else to_json(to_stream_response(event))
    update = event if isinstance(event, TaskStatusUpdateEvent | TaskArtifactUpdateEvent) else None
    if old is not None and update is not None and applied(old, update) == new:
        return SavedChange(event=said)
    kept, rest = change(old, new)
    return SavedChange(event=said, is_task=is_task, kept=kept, rest=to_json(rest))


def write_change(value: SavedChange) -> bytes:
    """Return the JSON of a change, for the media store."""
    return value.to_json_bytes()


def read_change(data: bytes) -> SavedChange:
    """Return the change whose JSON `write_change` returned.

    Raises:
        DecodeError: the JSON is damaged.
    """
    try:
        return SavedChange.model_validate_json(data)
    except ValidationError as error:
        raise DecodeError("change", f"not the JSON of a change: {error.errors()[0]['msg']}") from None
