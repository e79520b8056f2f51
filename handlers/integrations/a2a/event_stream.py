"""`LanebusEventStream`: the events of tasks, followed in their sessions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from a2a.server.cluster import TaskEventStream, TaskVersion, VersionedEvent
from a2a.types import Task

from lanebus import Cursor, DecodeFailure, ExtensionMessage, MessageError, Session
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.a2a.task_record import (
    KINDS,
    TaskDeleted,
    TaskRecord,
    TaskSaved,
    fold,
    load_change,
    settle,
    version_of,
)
from lanebus.handlers.integrations.a2a.task_store import LanebusTaskStore
from lanebus.handlers.integrations.session_states import own_message
from lanebus.integration import resumable


class LanebusEventStream(TaskEventStream):
    """Follows the tasks of a `LanebusTaskStore` on any replica. Nothing is polled: all subscriptions share one reader.

    A version is a cursor of the task's session. So a subscription after a version yields each event that was saved
    after it exactly once, in order, whenever it begins and wherever the agent runs.

    Source: `TaskEventStream` of the A2A SDK, since 1.3.
    """

    def __init__(self, store: LanebusTaskStore) -> None:
        """
        Args:
            store: the store that saves the tasks.
        """
        self._store = store

    async def publish(self, task_id: str, event: VersionedEvent) -> None:
        """Do nothing: `LanebusTaskStore.save` has appended the event together with the task.

        An agent that answers with a message and no task has no session, so such an answer is not kept.
        """

    async def destroy(self, task_id: str) -> None:
        """Do nothing: the log keeps the events, and subscribers end by themselves."""

    @resumable
    async def subscribe(self, task_id: str, *, after: TaskVersion) -> AsyncGenerator[VersionedEvent, None]:
        """Yield each event after a version once, in order, and wait for later ones.

        End when the task is deleted, or its session is closed: no event can follow then.

        Cancelling loses nothing: subscribe again after the version of the last event.

        Args:
            task_id: the task. It need not exist yet.
            after: the version; MISSING means from the first event on.

        Raises:
            InvalidArgument: `after` is not a version of a `LanebusTaskStore`.
            DecodeError: an entry is damaged.
            MediaMissing: the media store no longer has a large event.
            CursorTrimmed: later events were trimmed that are not in the archive.
            LogRolledBack: the log lost its end, and with it the version.
            BusError: the other errors of `Session.follow`.
        """
        session = self._store.session(task_id)
        async with aclosing(session.follow(kinds=KINDS, after=_cursor(after), until_closed=True)) as envelopes:
            async for envelope in envelopes:
                if isinstance(envelope.message, DecodeFailure):
                    raise envelope.message.error
                message = own_message(envelope)
                if not isinstance(message, ExtensionMessage):
                    continue
                if message.kind == TaskDeleted.KIND:
                    return
                change = await load_change(TaskSaved.read(message.data), session.media)
                task = await _task_at(session, envelope.position) if change.is_task else None
                event = change.read_event(task)
                if event is not None:
                    yield VersionedEvent(event, version_of(envelope.cursor))


async def _task_at(session: Session, position: int) -> Task | None:
    """Return the task as it was saved at a position."""
    record = TaskRecord()
    async with aclosing(session.read(kinds=KINDS, until=position)) as envelopes:
        async for envelope in envelopes:
            if (message := own_message(envelope)) is not None:
                fold(record, envelope.cursor, message)
    await settle(record, session.media)
    record.require_whole()
    return record.task


def _cursor(version: TaskVersion) -> Cursor:
    value = version._value  # pyright: ignore[reportPrivateUsage]  # the SDK's stores read it too
    with suppress(MessageError):
        if isinstance(value, str):
            return Cursor.parse(value)
    if isinstance(value, int) and value >= 0:  # MISSING, or a position, which was the version before
        return Cursor(value)
    raise InvalidArgument("after", value, "pass a version that a LanebusTaskStore returned")
