"""`TaskRecord`: the newest task of a session, folded from its entries; and what a save adds to them.

An entry holds the change from the previous task. The runs of a task say which loops and turns it shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from a2a.server.cluster import TaskVersion
from a2a.types import Message, Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import (  # type: ignore[import-untyped]  # the stubs are not installed
    MessageToDict,
    ParseDict,
    ParseError,
    SerializeToJsonError,
)
from google.protobuf.message import (  # type: ignore[import-untyped]  # the stubs are not installed
    Message as Proto,
)
from pydantic import JsonValue, ValidationError

from lanebus import START, Cursor, ExtensionMessage, MessageError
from lanebus.errors import DecodeError, InvalidArgument
from lanebus.handlers.integrations.session_states import load_value
from lanebus.integration import ExtensionData, Wire
from lanebus.media import MediaStore
from lanebus.messages import Publishable, StopReason, TurnId

# Compute how a task changed, and apply the change. Pure: the same changes always give the same task.


class Kept(Wire):
    """What a changed task keeps of the task before it."""

    history: int = 0
    """number of messages at the beginning of the history"""
    artifacts: int = 0
    """number of artifacts at the beginning of the list"""
    status: bool = False
    metadata: bool = False


def renamed(task: Task, id: str) -> Task:
    """Return a copy of a task with this id. The task of a fork has the id of the session that it was forked from."""
    copy = copied(task)
    copy.id = id
    return copy


def canceled(newest: Task, task: Task) -> Task:
    """Return the newest task with the status of a CANCELED task that was made from an older version.

    A message of the status is taken over if it is new. Nothing that was saved after the older version is lost.
    """
    new = copied(newest)
    known = {message.message_id for message in newest.history}
    has_message = task.status.HasField("message") and task.status.message.message_id not in known
    if has_message and new.status.HasField("message") and new.status.message != task.status.message:
        new.history.append(new.status.message)
    kept = copied(new.status)
    new.status.CopyFrom(task.status)
    if not has_message:
        new.status.ClearField("message")
        if kept.HasField("message"):
            new.status.message.CopyFrom(kept.message)
    return new


def applied(task: Task, event: TaskStatusUpdateEvent | TaskArtifactUpdateEvent) -> Task:
    """Return the task after an event, as the SDK's task manager changes it.

    An artifact's piece that has no artifact to be appended to changes nothing.
    """
    new = copied(task)
    if isinstance(event, TaskStatusUpdateEvent):
        if new.status.HasField("message"):
            new.history.append(new.status.message)
        if event.metadata:
            new.metadata.MergeFrom(event.metadata)
        new.status.CopyFrom(event.status)
        return new
    place = next((at for at, each in enumerate(new.artifacts) if each.artifact_id == event.artifact.artifact_id), None)
    if place is not None and event.append:
        new.artifacts[place].parts.extend(event.artifact.parts)
        if event.artifact.metadata:
            new.artifacts[place].metadata.MergeFrom(event.artifact.metadata)
    elif place is not None:
        new.artifacts[place].CopyFrom(event.artifact)
    elif not event.append:
        new.artifacts.append(event.artifact)
    return new


def change(old: Task | None, new: Task) -> tuple[Kept, Task]:
    """Return what `new` keeps of `old`, and a task that has the rest only. `merged` is the inverse."""
    rest = copied(new)
    if old is None:
        return Kept(), rest
    kept = Kept(
        history=_shared_length(old.history, new.history),
        artifacts=_shared_length(old.artifacts, new.artifacts),
        status=_is_field_unchanged(old, new, "status"),
        metadata=_is_field_unchanged(old, new, "metadata"),
    )
    del rest.history[: kept.history]
    del rest.artifacts[: kept.artifacts]
    for name in ("status", "metadata"):
        if getattr(kept, name):
            rest.ClearField(name)
    return kept, rest


def merged(old: Task | None, kept: Kept, rest: Task) -> Task:
    """Return the task of which `change` returned `kept` and `rest`."""
    new = copied(rest)
    if old is None:
        return new
    del new.history[:]
    del new.artifacts[:]
    new.history.extend([*old.history[: kept.history], *rest.history])
    new.artifacts.extend([*old.artifacts[: kept.artifacts], *rest.artifacts])
    if kept.status:
        new.status.CopyFrom(old.status)
    if kept.metadata:
        new.metadata.CopyFrom(old.metadata)
    return new


def _is_field_unchanged(old: Task, new: Task, name: str) -> bool:
    both = old.HasField(name) and new.HasField(name)
    return bool(both and getattr(old, name) == getattr(new, name))


def _shared_length(old: Sequence[object], new: Sequence[object]) -> int:
    """Return the number of elements that both lists begin with."""
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        same += 1
    return same


# The entries that a task is folded from: a save, and a deletion.

A2aEvent = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent


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


# The runs of a task: each is one loop with one turn, from a user's message until the task ends or asks for input.

_RUNNING_STATES = frozenset(
    {TaskState.TASK_STATE_UNSPECIFIED, TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING}
)

_STOP_REASONS: dict[int, StopReason] = {
    TaskState.TASK_STATE_FAILED: "error",
    TaskState.TASK_STATE_REJECTED: "error",
    TaskState.TASK_STATE_CANCELED: "aborted",
}

ENDED = frozenset({TaskState.TASK_STATE_COMPLETED, *_STOP_REASONS})
"""the states that a task never leaves"""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """The newest run of a task."""

    number: int = 0
    """runs so far, including this one; 0 before the first"""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class TaskStep:
    """What one save does to the runs of a task."""

    run: TaskRun
    """the run that the save belongs to, as it is after the save"""
    begins: bool
    ends: bool


def next_step(run: TaskRun, old: Task | None, new: Task, shown: set[str]) -> TaskStep:
    """Return what a save does to the runs of a task. Pure.

    Args:
        run: the newest run before the save.
        old: the task before the save; None if there was none.
        new: the task after it.
        shown: ids of the messages that earlier saves had.
    """
    is_running, is_ended = new.status.state in _RUNNING_STATES, new.status.state in ENDED
    is_asked = any(message.role == Role.ROLE_USER and message.message_id not in shown for message in messages_of(new))
    has_moved = old is None or old.status.state != new.status.state
    begins = not run.is_open and (is_running or is_asked or has_moved)
    ends = (run.is_open or begins) and not is_running and (is_ended or not is_asked)
    return TaskStep(TaskRun(run.number + begins, (run.is_open or begins) and not ends), begins, ends)


def messages_of(task: Task) -> list[Message]:
    """Return the messages of a task, oldest first."""
    return [*task.history, *([task.status.message] if task.status.HasField("message") else [])]


def stop_reason(task: Task) -> StopReason:
    """Return why a run ended, from the state of its task."""
    return _STOP_REASONS.get(task.status.state, "stop")


def turn_of(session: str, run: TaskRun) -> TurnId:
    """Return the id of the turn of a run."""
    return TurnId(loop_id=f"{session}.a2a.{run.number}", turn_index=0)


# `TaskRecord`: the newest task of a session, folded from its entries.

KINDS = frozenset({TaskSaved.KIND, TaskDeleted.KIND})
"""the kinds of the entries that a task is folded from"""


def version_of(cursor: Cursor) -> TaskVersion:
    """Return the version that the entry at a cursor saved.

    It is the cursor's text, because the same position may hold another save after a rollback. Its position has as many
    digits as any: the SDK compares texts.
    """
    return (
        TaskVersion(f"{cursor.position:018}{str(cursor).lstrip('0123456789')}")
        if cursor.position
        else TaskVersion.MISSING
    )


@dataclass(slots=True)
class TaskRecord:
    """The newest task of a session. Entries whose change is in the media store wait until `settle` has loaded it."""

    task: Task | None = None
    """the newest task; None before the first save and after a deletion"""
    cursor: Cursor = START
    """cursor of the entry that saved the task; `START` if there is none"""
    owner: str = ""
    run: TaskRun = field(default_factory=TaskRun)
    """the newest run of the task"""
    shown: set[str] = field(default_factory=set[str])
    """ids of the messages that are in the LLM lane; a deletion leaves them there"""
    waiting: list[tuple[Cursor, JsonValue]] = field(default_factory=list[tuple[Cursor, JsonValue]])
    """cursors and data of the entries that are not folded yet, oldest first"""
    fault: MessageError | None = None
    """why an entry cannot be read; None if all could be"""

    @property
    def version(self) -> TaskVersion:
        """The version of the task; MISSING if there is none."""
        return version_of(self.cursor)

    def require_whole(self) -> None:
        """Raise the fault of an entry that cannot be read."""
        if self.fault is not None:
            raise self.fault

    def add(self, cursor: Cursor, saved: TaskSaved, change: SavedChange) -> None:
        """Apply a save. A change that cannot be applied is the record's fault."""
        try:
            task = change.apply(self.task)
        except MessageError as error:
            self.fault = self.fault or error
            return
        self.run = next_step(self.run, self.task, task, self.shown).run
        self.task, self.cursor, self.owner = task, cursor, saved.owner
        self.shown.update(message.message_id for message in messages_of(task))


def fold(record: TaskRecord, cursor: Cursor, message: Publishable) -> None:
    """Add an entry, given its cursor. It waits if it, or one before it, has its change in the media store."""
    if not isinstance(message, ExtensionMessage):
        return
    if message.kind == TaskDeleted.KIND:
        record.task, record.cursor, record.fault, record.run = None, START, None, TaskRun(record.run.number)
        record.waiting.clear()
        return
    try:
        saved = TaskSaved.read(message.data)
    except DecodeError as error:
        record.fault = record.fault or error
        return
    if saved.change is None or record.waiting:
        record.waiting.append((cursor, message.data))
    else:
        record.add(cursor, saved, saved.change)


async def settle(record: TaskRecord, store: MediaStore) -> None:
    """Load the changes that are in the media store, and fold the entries that wait.

    Raises:
        MediaMissing: the media store no longer has a change.
        MediaDamaged: a stored change has another SHA-256.
        DecodeError: a stored change is damaged.
        Unavailable: the store cannot be reached.
    """
    while record.waiting:
        cursor, data = record.waiting[0]
        saved = TaskSaved.read(data)
        change = await load_change(saved, store)
        record.add(cursor, saved, change)
        del record.waiting[0]


async def load_change(saved: TaskSaved, store: MediaStore) -> SavedChange:
    """Return the change of a save, from its entry or from the media store. Raises the errors of `settle`."""
    return saved.change or read_change(await load_value(store, saved.stored))


# Copy protobuf messages, and convert them to and from JSON.


M = TypeVar("M", bound=Proto)


def copied(message: M) -> M:
    """Return a copy of a message, which its owner may change meanwhile."""
    copy: M = type(message)()
    copy.CopyFrom(message)
    return copy


def to_json(message: Proto) -> JsonValue:
    """Return the JSON of a message.

    Raises:
        InvalidArgument: the message has a value that JSON has not, such as NaN.
    """
    try:
        data: JsonValue = MessageToDict(message)
    except SerializeToJsonError as error:
        raise InvalidArgument("task", type(message).__name__, f"pass only what JSON has: {error}") from None
    return data


def from_json(data: JsonValue, into: M) -> M:
    """Fill a message from its JSON, and return it. Fields that are unknown here are left out.

    Raises:
        DecodeError: the JSON is not that of such a message.
    """
    if not isinstance(data, dict):
        raise DecodeError("change", "not an object")
    try:
        ParseDict(data, into, ignore_unknown_fields=True)
    except ParseError as error:
        raise DecodeError("change", str(error)) from None
    return into
