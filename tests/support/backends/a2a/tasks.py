"""Tasks, and their events as agents send them."""

from collections.abc import AsyncIterable
from contextlib import aclosing

from a2a.auth.user import User
from a2a.server.cluster import TaskVersion, VersionedEvent
from a2a.server.context import ServerCallContext
from a2a.server.tasks.task_manager import TaskManager
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from lanebus.a2a import LanebusEventStream, LanebusTaskStore

__all__ = ("ANYONE", "artifact", "call_of", "events", "manager", "message", "new_task", "states_of", "status", "texts")

ANYONE = ServerCallContext()
"""a call without a user"""


class _Named(User):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return self._name


def call_of(user: str) -> ServerCallContext:
    """Return a call of a user."""
    return ServerCallContext(user=_Named(user))


def message(text: str, *, role: Role = Role.ROLE_AGENT, id: str | None = None) -> Message:
    """Return a message of one text, which is also its id unless one is given."""
    return Message(message_id=id or text, role=role, parts=[Part(text=text)])


def new_task(id: str, text: str = "hello", *, context_id: str = "c") -> Task:
    """Return a task as an agent begins it: submitted, with the user's message."""
    submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
    return Task(id=id, context_id=context_id, status=submitted, history=[message(text, role=Role.ROLE_USER)])


def status(id: str, state: TaskState, text: str | None = None, *, context_id: str = "c") -> TaskStatusUpdateEvent:
    """Return an update of a task's status, with a message of the agent if there is a text."""
    said = TaskStatus(state=state, message=None if text is None else message(text))
    return TaskStatusUpdateEvent(task_id=id, context_id=context_id, status=said)


def artifact(id: str, name: str, *parts: Part, append: bool = False) -> TaskArtifactUpdateEvent:
    """Return a new artifact of a task, or more parts of one."""
    made = Artifact(artifact_id=name, name=name, parts=parts)
    return TaskArtifactUpdateEvent(task_id=id, context_id="c", artifact=made, append=append)


def manager(store: LanebusTaskStore, id: str, context: ServerCallContext = ANYONE) -> TaskManager:
    """Return what saves a task's events in the SDK's server."""
    return TaskManager(task_store=store, context=context, task_id=id, context_id=None, initial_message=None)


async def events(
    stream: LanebusEventStream, id: str, count: int, after: TaskVersion = TaskVersion.MISSING
) -> list[VersionedEvent]:
    """Return the next events of a task."""
    found: list[VersionedEvent] = []
    async with aclosing(stream.subscribe(id, after=after)) as subscription:
        while len(found) < count:
            found.append(await anext(subscription))
    return found


def texts(found: list[VersionedEvent]) -> list[str]:
    """Return the texts of status updates."""
    said = [each.event.status.message for each in found if isinstance(each.event, TaskStatusUpdateEvent)]
    return [part.text for each in said for part in each.parts]


async def states_of(subscription: AsyncIterable[object]) -> list[str]:
    """Return the states that a subscription yields until it ends."""
    return [
        TaskState.Name(event.status.state)
        async for event in subscription
        if isinstance(event, Task | TaskStatusUpdateEvent)
    ]
