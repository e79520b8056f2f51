"""`LanebusTaskStore`: the tasks of an A2A server, each a session of the bus. `LanebusEventStream`: their events.

`TaskListing` lists the tasks of an owner, and `ShownTask` writes what people and models see of a save.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

import anyio
from a2a.server.cluster import (
    ConcurrentTaskModificationError,
    StoredTask,
    TaskEventStream,
    TaskVersion,
    VersionedEvent,
    VersionedTaskStore,
)
from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import OwnerResolver, resolve_user_scope
from a2a.types import (
    Artifact,
    ListTasksRequest,
    ListTasksResponse,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
)
from a2a.types import Message as A2aMessage
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor
from pydantic import JsonValue

from lanebus import (
    AssistantMessage,
    Bus,
    BusError,
    Cursor,
    DecodeFailure,
    ExtensionMessage,
    MessageError,
    Receipt,
    Session,
    SessionHead,
    TextBlock,
    Usage,
    UserMessage,
)
from lanebus.errors import InvalidArgument
from lanebus.handlers.integrations.a2a.task_record import (
    ENDED,
    KINDS,
    A2aEvent,
    SavedChange,
    TaskDeleted,
    TaskRecord,
    TaskSaved,
    TaskStep,
    canceled,
    change_of,
    copied,
    fold,
    load_change,
    messages_of,
    next_step,
    renamed,
    settle,
    stop_reason,
    to_json,
    turn_of,
    version_of,
    write_change,
)
from lanebus.handlers.integrations.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds
from lanebus.handlers.integrations.session_states import SessionStates, own_message, session_id_of, store_value
from lanebus.integration import (
    Given,
    RecentSessions,
    bytes_media,
    cut_text,
    is_of_session,
    media_block_of,
    now_ms,
    plain_type,
    resumable,
)
from lanebus.messages import AgentEnded, AgentStarted, Block, Publishable, StopReason, TurnEnded, TurnId, TurnStarted


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
        self._states = SessionStates(bus.session, TaskRecord, fold, kinds=KINDS, agent=agent, bounds=bounds)
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the selection and the order of tasks need of one task."""

    session: str
    id: str
    owner: str
    context_id: str
    state: TaskState
    timestamp: int | None
    """time of the status, in nanoseconds since 1970 UTC; None if the status has none"""

    @property
    def cursor(self) -> ListTasksCursor:
        return ListTasksCursor(timestamp_ns=self.timestamp, task_id=self.id)

    @property
    def size_bytes(self) -> int:
        """Number of characters of its texts, which other systems choose."""
        return len(self.id) + len(self.owner) + len(self.context_id)

    def matches(self, params: ListTasksRequest, owner: str) -> bool:
        if self.owner != owner:
            return False
        if params.context_id and self.context_id != params.context_id:
            return False
        if params.status and self.state != params.status:
            return False
        if not params.HasField("status_timestamp_after"):
            return True
        return self.timestamp is not None and self.timestamp >= params.status_timestamp_after.ToNanoseconds()


class TaskListing:
    """Lists the tasks of one agent. It remembers what the order needs, and reads only tasks that changed."""

    def __init__(self, bus: Bus, states: SessionStates[TaskRecord], agent: str, bounds: BackendBounds) -> None:
        """
        Args:
            bus: the open bus.
            states: the tasks, folded from their sessions.
            agent: the agent that the sessions belong to.
            bounds: the numbers of remembered tasks and of reads at once.
        """
        self._bus, self._states, self._agent, self._bounds = bus, states, agent, bounds
        self._known = RecentSessions[tuple[bytes, _Listed | None]](bounds.listed_sessions, bounds.listed_bytes)

    async def page(self, params: ListTasksRequest, owner: str) -> ListTasksResponse:
        """Return a page of an owner's tasks.

        A task that cannot be read, such as one whose entries were trimmed, is left out and logged.

        Raises:
            InvalidParamsError: the page token is not valid.
            Unavailable: the server cannot be reached.
        """
        before = _page_start(params.page_token)
        found = [task for task in await self._tasks() if task.matches(params, owner)]
        found.sort(key=lambda task: task.cursor.sort_key(), reverse=True)
        left = found if before is None else [task for task in found if task.cursor.sort_key() < before.sort_key()]
        size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        page = left[:size]
        tasks = [task for listed in page if (task := await self._task(listed)) is not None]
        token = encode_list_tasks_cursor(page[-1].cursor) if len(left) > size else ""
        return ListTasksResponse(tasks=tasks, next_page_token=token, page_size=size, total_size=len(found))

    async def _task(self, listed: _Listed) -> Task | None:
        """Return a task for the page; None if it was deleted or damaged meanwhile."""
        try:
            async with self._states.newest(listed.session) as record:
                await settle(record, self._bus.media)
                return None if record.task is None else renamed(record.task, listed.id)
        except BusError as error:
            if not is_of_session(error):
                raise
            _log.warning("session %s: its task is not listed: %s", listed.session, error)
            return None

    async def _tasks(self) -> list[_Listed]:
        heads = [head for head in await self._bus.sessions(agent=self._agent) if not head.is_erased]
        found = {head.session: known for head in heads if (known := self._known.get(head.session)) is not None}
        await self._read([head for head in heads if found.get(head.session, (b"",))[0] != head.fingerprint], found)
        for session, known in found.items():
            self._known.keep(session, known, 0 if known[1] is None else known[1].size_bytes)
        return [listed for _, listed in found.values() if listed is not None]

    async def _read(self, heads: Iterable[SessionHead], found: dict[str, tuple[bytes, _Listed | None]]) -> None:
        """Read the tasks of these sessions, some at a time."""
        limit = anyio.CapacityLimiter(self._bounds.reads_at_once)
        failures: list[BusError] = []

        async def read(head: SessionHead) -> None:
            try:
                async with limit:
                    found[head.session] = (head.fingerprint, await self._read_one(head))
            except BusError as error:  # raised below; the task group would wrap it in an exception group
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for head in heads:
                tasks.start_soon(read, head)
        if failures:
            raise failures[0]

    async def _read_one(self, head: SessionHead) -> _Listed | None:
        """Return what the order needs of a session's task; None if it has none, or cannot be read."""
        try:
            async with self._states.newest(head.session) as record:
                await settle(record, self._bus.media)
                record.require_whole()
                return None if record.task is None else _listed(head.session, record.task, record.owner)
        except BusError as error:
            if not is_of_session(error):
                raise
            _log.warning("session %s: its task is not listed: %s", head.session, error)
            return None


def _listed(session: str, task: Task, owner: str) -> _Listed:
    # The task of a fork has the id of the session that it was forked from.
    id = task.id if session_id_of(task.id, prefix="a2a") == session else session
    has_time = task.status.HasField("timestamp")
    time = task.status.timestamp.ToNanoseconds() if has_time else None
    return _Listed(session, id, owner, task.context_id, task.status.state, time)


def _page_start(token: str) -> ListTasksCursor | None:
    """Return the place after which a page begins; None for the first page."""
    cursor = decode_list_tasks_cursor(token) if token else None
    if token and cursor is None:
        raise InvalidParamsError(message=f"Invalid page token: {token}")
    return cursor


# What people and models see of a save: messages in the LLM lane; runs, states and artifacts in the other lane.

STATUS = "a2a.status"
"""kind of the note that a task has another state"""
ARTIFACT = "a2a.artifact"
"""kind of the note that an artifact was added, replaced or appended to"""


class ShownTask:
    """Makes the visible messages of saves."""

    def __init__(self, agent: str, characters: int) -> None:
        """
        Args:
            agent: name of the agent in the events of its runs.
            characters: longer texts are cut.
        """
        self._agent, self._characters = agent, characters

    def messages(
        self, old: Task | None, new: Task, event: A2aEvent | None, *, step: TaskStep, turn: TurnId, shown: set[str]
    ) -> Iterator[Publishable]:
        """Yield what is new for readers, oldest first.

        Args:
            old: the task before the save; None if there was none.
            new: the task after it.
            event: the event of the save.
            step: what the save does to the runs of the task.
            turn: id of the turn that the save belongs to.
            shown: ids of the messages that are in the LLM lane already.
        """
        if step.begins:
            yield AgentStarted(loop_id=turn.loop_id, agent=self._agent).as_extension()
            yield TurnStarted(turn_id=turn).as_extension()
        last = new.status.message.message_id if new.status.HasField("message") else None
        for message in messages_of(new):
            if message.message_id not in shown:
                yield self._spoken(message, stop_reason(new) if message.message_id == last else "stop", turn)
        if old is None or old.status.state != new.status.state:
            yield ExtensionMessage.of(STATUS, {"state": TaskState.Name(new.status.state)})
        if isinstance(event, TaskArtifactUpdateEvent):
            yield self._note(event.artifact, is_append=event.append, is_last=event.last_chunk)
        elif old is None:
            for artifact in new.artifacts:
                yield self._note(artifact, is_append=False, is_last=True)
        if step.ends:
            yield from run_ended(turn, stop_reason(new))

    def _spoken(self, message: A2aMessage, stop: StopReason, turn: TurnId) -> UserMessage | AssistantMessage:
        content, name = tuple(self._blocks(message.parts)), message.message_id or None
        if message.role != Role.ROLE_AGENT:
            return UserMessage(content=content, timestamp=now_ms(), id=name, turn_id=turn)
        answer = AssistantMessage(content=content, timestamp=now_ms(), id=name, turn_id=turn, stop_reason=stop)
        return answer.model_copy(update={"error_message": answer.text_content()}) if stop == "error" else answer

    def _note(self, artifact: Artifact, *, is_append: bool, is_last: bool) -> ExtensionMessage:
        parts: list[JsonValue] = [
            {"type": "text", "text": block.text} if isinstance(block, TextBlock) else {"type": block.type}
            for block in self._blocks(artifact.parts)
        ]
        data: dict[str, JsonValue] = {"artifactId": artifact.artifact_id, "name": artifact.name, "parts": parts}
        return ExtensionMessage.of(ARTIFACT, {**data, "append": is_append, "lastChunk": is_last})

    def _blocks(self, parts: Iterable[Part]) -> Iterator[Block]:
        left = self._characters
        for part in parts:
            block = _part_block(part)
            if isinstance(block, TextBlock):
                if len(block.text) > left:
                    block = TextBlock(text=f"{cut_text(block.text, left)} … ({len(block.text)} characters)")
                left = max(0, left - len(block.text))
            yield block


def run_ended(turn: TurnId, stop: StopReason) -> Iterator[ExtensionMessage]:
    """Yield the events that end a run. A2A reports no usage."""
    yield TurnEnded(turn_id=turn, stop_reason=stop, usage=Usage()).as_extension()
    yield AgentEnded(loop_id=turn.loop_id, stop_reason=stop, turns=1, usage=Usage()).as_extension()


def _part_block(part: Part) -> Block:
    """Return a part as a block. What is neither text nor media becomes text: JSON, a URL, or a name."""
    match part.WhichOneof("content"):
        case "text":
            return TextBlock(text=part.text)
        case "data":
            return TextBlock(text=json.dumps(to_json(part.data), ensure_ascii=False))
        case "raw":
            kind, name = Given(plain_type(part.media_type), "media_type"), Given(part.filename or None, "filename")
            try:
                return media_block_of(bytes_media(part.raw, kind, name))
            except MessageError:  # no bytes, or a media type that is none
                return TextBlock(text=f"{part.filename} ({len(part.raw)} bytes)")
        case "url":
            return TextBlock(text=part.url)
        case _:
            return TextBlock(text=part.filename)


# `LanebusEventStream`: the events of tasks, followed in their sessions.


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
