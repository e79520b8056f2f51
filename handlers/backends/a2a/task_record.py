"""`TaskRecord`: the newest task of a session, folded from its entries."""

from dataclasses import dataclass, field

from a2a.server.cluster import TaskVersion
from a2a.types import Task
from pydantic import JsonValue

from lanebus.bus.errors import DecodeError, MessageError
from lanebus.bus.media.store import MediaStore
from lanebus.bus.messages.extension import ExtensionMessage
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.handlers.backends.a2a.saved_entry import SavedChange, TaskDeleted, TaskSaved, read_change
from lanebus.handlers.backends.a2a.task_run import TaskRun, messages_of, next_step
from lanebus.handlers.backends.values import load_value

__all__ = ("KINDS", "TaskRecord", "fold", "load_change", "settle", "version_of")

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
