"""What the current task works on: the fields that every log line of the task has in common."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from lanebus.handlers.trace_id import trace_id

__all__ = ("COMMON_FIELDS", "LogContext", "common_fields", "log_context", "within")

COMMON_FIELDS = ("session", "agent", "turn", "worker", "trace_id")
"""The fields of every event, in the order in which they are printed."""


@dataclass(slots=True)
class LogContext:
    """The common fields of log events. A task shares this object with the tasks that it starts, so all of them see a
    change. "" means that there is no value."""

    session: str = ""
    """id of the session"""
    agent: str = ""
    """name of the agent under which the session is served"""
    turn: str = ""
    """id of the turn, as in the log"""
    worker: str = ""
    """name of the worker"""
    trace_id: str = ""
    """id of the trace of the agent's newest run; "" means the current trace of the task that logs the event"""


_current: ContextVar[LogContext | None] = ContextVar("lanebus_log_context", default=None)


def log_context() -> LogContext:
    """Return the fields of the current task. Outside of a `within` block, all fields are empty, and changes are
    lost."""
    return _current.get() or LogContext()


def common_fields(context: LogContext | None = None) -> dict[str, str]:
    """Return the common fields by name. If `context` has no trace id, the result has the id of the current trace, if
    any.

    Args:
        context: the fields; None means the fields of the current task.
    """
    common = context or log_context()
    values: dict[str, str] = {name: getattr(common, name) for name in COMMON_FIELDS}
    values["trace_id"] = values["trace_id"] or trace_id()
    return values


@contextmanager
def within(context: LogContext) -> Generator[LogContext, None, None]:
    """Use these fields during the block, in this task and in the tasks that it starts."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
