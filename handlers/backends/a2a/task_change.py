"""Compute how a task changed, and apply the change. Pure: the same changes always give the same task."""

from collections.abc import Sequence

from a2a.types import Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent

from lanebus.bus.messages.base import Wire
from lanebus.handlers.backends.a2a.protobuf import copied

__all__ = ("Kept", "applied", "canceled", "change", "merged", "renamed")


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
        history=_common(old.history, new.history),
        artifacts=_common(old.artifacts, new.artifacts),
        status=_has_same(old, new, "status"),
        metadata=_has_same(old, new, "metadata"),
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


def _has_same(old: Task, new: Task, name: str) -> bool:
    both = old.HasField(name) and new.HasField(name)
    return bool(both and getattr(old, name) == getattr(new, name))


def _common(old: Sequence[object], new: Sequence[object]) -> int:
    """Return the number of elements that both lists begin with."""
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        same += 1
    return same
