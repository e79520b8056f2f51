"""`TaskListing`: the tasks of an owner in pages, the last updated first."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import anyio
from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, encode_list_tasks_cursor

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, is_of_session
from lanebus.bus.log.head import SessionHead
from lanebus.handlers.backends.a2a.task_change import renamed
from lanebus.handlers.backends.a2a.task_record import TaskRecord, settle
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.names import session_id_of
from lanebus.handlers.backends.session_states import SessionStates
from lanebus.handlers.recent import RecentSessions

__all__ = ("TaskListing",)

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
        before = _cursor(params.page_token)
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


def _cursor(token: str) -> ListTasksCursor | None:
    """Return the place after which a page begins; None for the first page."""
    cursor = decode_list_tasks_cursor(token) if token else None
    if token and cursor is None:
        raise InvalidParamsError(message=f"Invalid page token: {token}")
    return cursor
