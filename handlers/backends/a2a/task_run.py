"""The runs of a task: each is one loop with one turn, from a user's message until the task ends or asks for input."""

from dataclasses import dataclass

from a2a.types import Message, Role, Task, TaskState

from lanebus.bus.messages.assistant import StopReason
from lanebus.bus.messages.turn import TurnId

__all__ = ("ENDED", "TaskRun", "TaskStep", "messages_of", "next_step", "stop_reason", "turn_of")

_RUNNING = frozenset({TaskState.TASK_STATE_UNSPECIFIED, TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING})

_STOP: dict[int, StopReason] = {
    TaskState.TASK_STATE_FAILED: "error",
    TaskState.TASK_STATE_REJECTED: "error",
    TaskState.TASK_STATE_CANCELED: "aborted",
}

ENDED = frozenset({TaskState.TASK_STATE_COMPLETED, *_STOP})
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
    is_running, is_ended = new.status.state in _RUNNING, new.status.state in ENDED
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
    return _STOP.get(task.status.state, "stop")


def turn_of(session: str, run: TaskRun) -> TurnId:
    """Return the id of the turn of a run."""
    return TurnId(loop_id=f"{session}.a2a.{run.number}", turn_index=0)
