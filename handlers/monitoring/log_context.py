"""What the current task works on: the fields that every log line of the task has in common."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

__all__ = ("COMMON_FIELDS", "LogContext", "log_context", "within")

COMMON_FIELDS = ("session", "agent", "turn", "worker", "trace_id")
"""The fields of every event, in the order in which they are printed."""


@dataclass(slots=True)
class LogContext:
    """The common fields. Tasks that a task starts share its object, so a change shows in all of them. "" means none."""

    session: str = ""
    """id of the session"""
    agent: str = ""
    """name of the agent, as in `agent.started`"""
    turn: str = ""
    """id of the turn, as in the log"""
    worker: str = ""
    """name of the worker"""
    trace_id: str = ""
    """id of the trace; "" while nothing traces"""


_current: ContextVar[LogContext | None] = ContextVar("lanebus_log_context", default=None)


def log_context() -> LogContext:
    """Return the fields of the current task. Without `within`, they are all empty, and changes are not kept."""
    return _current.get() or LogContext()


@contextmanager
def within(context: LogContext) -> Generator[LogContext, None, None]:
    """Use these fields during the block, in this task and in the tasks that it starts."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
