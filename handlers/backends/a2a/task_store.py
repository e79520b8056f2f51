"""`LanebusTaskStore`: the tasks of an A2A server, each a session of the bus."""

from collections.abc import Callable, Mapping, Sequence

from a2a.server.cluster import ConcurrentTaskModificationError, StoredTask, TaskVersion, VersionedTaskStore
from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from pydantic import JsonValue

from lanebus.bus.bus import Bus
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.session.session import Session
from lanebus.bus.wire.receipt import Receipt
from lanebus.handlers.backends.a2a.lanes import ShownTask, run_ended
from lanebus.handlers.backends.a2a.listing import TaskListing
from lanebus.handlers.backends.a2a.protobuf import copied
from lanebus.handlers.backends.a2a.saved_entry import (
    A2aEvent,
    SavedChange,
    TaskDeleted,
    TaskSaved,
    change_of,
    write_change,
)
from lanebus.handlers.backends.a2a.task_change import canceled, renamed
from lanebus.handlers.backends.a2a.task_record import KINDS, TaskRecord, fold, settle, version_of
from lanebus.handlers.backends.a2a.task_run import ENDED, next_step, turn_of
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.backends.names import session_id_of
from lanebus.handlers.backends.session_states import SessionStates
from lanebus.handlers.backends.values import store_value

__all__ = ("LanebusTaskStore",)


class LanebusTaskStore(VersionedTaskStore):
    """Keeps the tasks of an A2A server in sessions of a bus. All replicas of a server use one namespace.

    Pass it to `DefaultRequestHandler` together with a `LanebusEventStream`. A task is the session with the task's id,
    so the page, `lanebus tail`, forks and archives serve it like any session. Messages are in its LLM lane. Runs,
    states and artifacts are in its extension lane.

    A save is one publish: it appends only what is new in the task, and the version of the task is the position of the
    save. Of several saves after the same version, one is appended, on any number of replicas. No worker answers the
    messages, as the A2A server runs the agent.

    A task belongs to the owner who saved it first. For other owners it does not exist.

    Source: `VersionedTaskStore` of the A2A SDK, since 1.3.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        agent: str = "a2a",
        owner_resolver: OwnerResolver = resolve_user_scope,
        bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS,
    ) -> None:
        """
        Args:
            bus: the open bus.
            agent: the agent that the sessions belong to. `list` returns the tasks of this agent.
            owner_resolver: returns the owner of a call's tasks. The default is the name of the call's user.
            bounds: sizes and numbers, see `BackendBounds`.

        Raises:
            InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        """
        self._owner_of, self._bounds = owner_resolver, bounds
        self._states = SessionStates(*(bus.session, TaskRecord, fold), kinds=KINDS, agent=agent, bounds=bounds)
        self._shown = ShownTask(agent, bounds.shown_characters)
        self._listing = TaskListing(bus, self._states, agent, bounds)

    def session(self, task_id: str) -> Session:
        """Return the session of a task. No I/O. It has the task's id if that is a valid session id."""
        return self._states.session(session_id_of(task_id, prefix="a2a"))

    async def save(
        self,
        task: Task,
        *,
        event: A2aEvent | None = None,
        prev: Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Append what is new in a task, together with its event, and return the new version.

        A cancelled call appends everything or nothing.

        Args:
            task: the task to save.
            event: the event that changed the task; None if there is none. Subscribers get it.
            prev: unused: the log has the task before.
            prev_version: the version that `task` was made from; MISSING for a new task.
            context: the call, whose owner the task belongs to.

        Raises:
            ConcurrentTaskModificationError: the newest version is another, or the task belongs to another owner. If
                `task` is CANCELED: there is no such task, or it has ended. CANCELED is saved whatever the newest
                version is, and keeps what other replicas have saved meanwhile.
            InvalidArgument: the task has a value that JSON has not.
            BusError: the errors of `Session.publish`.
        """
        del prev
        owner, new, session = self._owner_of(context), copied(task), self.session(task.id)
        event = None if event is None else copied(event)
        stored: dict[bytes, JsonValue] = {}

        def decide(record: TaskRecord) -> Sequence[Publishable]:
            record.require_whole()
            old = None if record.task is None else renamed(record.task, new.id)
            _require_version(record, new, prev_version, owner)
            is_stale = old is not None and record.version != prev_version
            after = canceled(old, new) if old is not None and is_stale else new
            step = next_step(record.run, old, after, record.shown)
            turn = turn_of(session.id, step.run)
            messages = self._shown.messages(old, after, event, step=step, turn=turn, shown=record.shown)
            return (*messages, self._entry(owner, change_of(old, after, event), stored))

        receipt = await self._append(session, decide, stored)
        return TaskVersion.MISSING if receipt is None else version_of(receipt.cursor)  # never None: it has an entry

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return a task with its version; None if there is no such task of the call's owner.

        Raises:
            DecodeError: an entry of the task is damaged.
            MediaMissing: the media store no longer has a large change of the task.
            CursorTrimmed: entries of the task were trimmed that are not in the archive.
            SessionErased: the session of the task was erased.
            Unavailable: the server cannot be reached.
        """
        session = self.session(task_id)
        async with self._states.newest(session.id) as record:
            await settle(record, session.media)
            record.require_whole()
            if record.task is None or record.owner != self._owner_of(context):
                return None
            return StoredTask(renamed(record.task, task_id), record.version)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return the tasks of the call's owner, the last updated first, in pages.

        It reads the heads of all sessions of the agent, and the tasks that changed since the last call.

        Raises:
            InvalidParamsError: the page token is not valid.
            Unavailable: the server cannot be reached.
        """
        return await self._listing.page(params, self._owner_of(context))

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Append that a task is deleted. Subscriptions to it end. A task of another owner is not deleted.

        Its messages stay in the session: `store.session(task_id).erase()` removes them for good.

        Raises:
            BusError: the errors of `get` and of `Session.publish`.
        """
        session, owner = self.session(task_id), self._owner_of(context)

        def decide(record: TaskRecord) -> Sequence[Publishable]:
            if record.task is None or record.owner != owner:
                return ()
            ended = run_ended(turn_of(session.id, record.run), "aborted") if record.run.is_open else ()
            return (*ended, TaskDeleted().as_extension())

        await self._append(session, decide, {})

    def _entry(self, owner: str, change: SavedChange, stored: Mapping[bytes, JsonValue]) -> Publishable:
        """Return the entry of a save. Raises _TooLarge if its change has to be stored first."""
        data = write_change(change)
        if len(data) <= self._bounds.inline_bytes:
            return TaskSaved(owner=owner, change=change).as_extension()
        if data not in stored:
            raise _TooLarge(data)
        return TaskSaved(owner=owner, stored=stored[data]).as_extension()

    async def _append(
        self, session: Session, decide: Callable[[TaskRecord], Sequence[Publishable]], stored: dict[bytes, JsonValue]
    ) -> Receipt | None:
        """Append a decision. First load what the decision needs, and store what is large."""

        def decide_settled(record: TaskRecord) -> Sequence[Publishable]:
            if record.waiting:
                raise _Unsettled
            return decide(record)

        for _ in range(self._bounds.attempts):
            try:
                return await self._states.append(session.id, decide_settled)
            except _Unsettled:
                async with self._states.newest(session.id) as record:
                    await settle(record, session.media)
            except _TooLarge as large:
                stored[large.data] = await store_value(session.media, large.data, bounds=self._bounds)
        return await self._states.append(session.id, decide)


class _Unsettled(Exception):
    """The decision needs changes that are in the media store."""


class _TooLarge(Exception):
    """The decision is to append a change that belongs in the media store."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


def _require_version(record: TaskRecord, new: Task, prev_version: TaskVersion, owner: str) -> None:
    old = record.task
    is_other = old is not None and record.owner != owner
    if new.status.state == TaskState.TASK_STATE_CANCELED:
        is_late = old is None or old.status.state in ENDED
    else:
        is_late = record.version != prev_version
    if is_other or is_late:
        raise ConcurrentTaskModificationError(new.id)
