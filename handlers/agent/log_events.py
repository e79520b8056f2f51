"""The events that workers and servers log, one line each: their names, levels and fields.

`log_context` has the fields that all lines of a task have in common.
"""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

# What the current task works on: the fields that every log line of the task has in common.

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


# A line never contains a message's text, the arguments of a tool, the text of an error or a key. It names the type of
# an error. `docs/reference/logs.md` is made from these classes.

Value = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """The base class of all events. The common fields come from the task's `LogContext`."""

    NAME: ClassVar[str]
    LEVEL: ClassVar[int] = logging.INFO

    @classmethod
    def meaning(cls) -> str:
        """Return the first line of the class's docstring."""
        return (cls.__doc__ or "").partition("\n")[0]

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names of the event's fields, without the common fields."""
        return tuple(field.name for field in fields(cls))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBegun(LogEvent):
    """A worker began to fetch work."""

    NAME = "worker.begun"
    group: str
    concurrency: int
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNameInUse(LogEvent):
    """A worker began under the name of another worker that may still run: its last heartbeat is recent."""

    NAME = "worker.name_in_use"
    LEVEL = logging.WARNING
    group: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnded(LogEvent):
    """A worker left its group, or could not reach the server to do so."""

    NAME = "worker.ended"
    group: str
    runs: int
    has_left: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorBegun(LogEvent):
    """The monitor accepts requests."""

    NAME = "monitor.begun"
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBegun(LogEvent):
    """A worker began to stop: it fetches no more work and finishes its sessions."""

    NAME = "drain.begun"
    sessions: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainEnded(LogEvent):
    """A stopping worker has no session left: each was finished, or returned to the group."""

    NAME = "drain.ended"
    handed_back: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBegun(LogEvent):
    """An agent began a loop in a session."""

    NAME = "loop.begun"
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResumed(LogEvent):
    """A worker continues an open loop that another worker began, or that it began itself before a restart.

    A worker also logs it for a loop of its own if it lost the lease meanwhile, or no longer has the session in memory.
    """

    NAME = "loop.resumed"
    loop: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnded(LogEvent):
    """A loop ended. The session's log has the end first: a worker that is stopped in between does not log this line."""

    NAME = "loop.ended"
    loop: str
    reason: str
    turns: int
    tokens: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDone(LogEvent):
    """A turn ended: one model call with its tools."""

    NAME = "turn.ended"
    LEVEL = logging.DEBUG
    reason: str
    model: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(LogEvent):
    """A model call failed. A transient failure is retried."""

    NAME = "model.failed"
    LEVEL = logging.WARNING
    provider: str
    model: str
    status: int | None
    is_transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRetried(LogEvent):
    """The work of a session failed and is tried again after a pause."""

    NAME = "work.retried"
    LEVEL = logging.WARNING
    attempt: int
    seconds: float
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDead(LogEvent):
    """The work of a session was given up and became a dead letter, which holds the reason."""

    NAME = "work.dead"
    LEVEL = logging.ERROR
    letter: str
    attempts: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(LogEvent):
    """The lease of a running session expired or was taken over; its run was cancelled."""

    NAME = "lease.lost"
    LEVEL = logging.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysMany(LogEvent):
    """A session remembers so many publish keys that it should be closed; none is forgotten while it exists."""

    NAME = "session.keys_many"
    LEVEL = logging.WARNING
    keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAwaited(LogEvent):
    """A command waits for the bus's server, which did not answer since the start. Logged again each minute."""

    NAME = "server.awaited"
    LEVEL = logging.WARNING
    fault: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLost(LogEvent):
    """The bus's server does not answer, or refuses requests."""

    NAME = "server.lost"
    LEVEL = logging.ERROR
    what: str
    error: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUnsafe(LogEvent):
    """The bus's server may lose acknowledged messages."""

    NAME = "server.unsafe"
    LEVEL = logging.WARNING
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFound(LogEvent):
    """The bus's server answers again, or for the first time."""

    NAME = "server.found"
    what: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFoundEmptied(LogEvent):
    """The log that this process, or an earlier one on its machine, knew is gone, and the namespace was begun anew.

    Publishes are refused and workers fetch nothing, until the data is restored or the new log is accepted.
    """

    NAME = "log.emptied"
    LEVEL = logging.ERROR
    namespace: str
    seen: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFoundOlder(LogEvent):
    """The server has an older copy of the log: what was appended between `found` and `seen` may be lost.

    Work goes on. `found` is empty if the copy does not tell its time.
    """

    NAME = "log.rolled_back"
    LEVEL = logging.ERROR
    namespace: str
    seen: str
    found: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccepted(LogEvent):
    """The process works on after `log.emptied`: the new log was accepted, or the known one is back."""

    NAME = "log.accepted"
    namespace: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsRefused(LogEvent):
    """The page's server refused connections since the last such event, because too many were open.

    If `client` has most of the open ones, it may hold them to keep others out; if it is a proxy of yours, name it with
    `--trusted-proxy`.
    """

    NAME = "connections.refused"
    LEVEL = logging.WARNING
    refused: int
    open: int
    client: str
    client_open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRead(LogEvent):
    """A principal was allowed to read. Logged to `lanebus.audit`, like the events that follow."""

    NAME = "access.read"
    LEVEL = logging.DEBUG
    principal: str
    action: str
    lane: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAllowed(LogEvent):
    """A principal was allowed to write."""

    NAME = "access.allowed"
    principal: str
    action: str
    lane: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRefused(LogEvent):
    """A request was refused."""

    NAME = "access.refused"
    LEVEL = logging.WARNING
    principal: str
    action: str
    lane: str
    client: str
    refusal: str
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEnded(LogEvent):
    """An open event stream ended, because its principal lost the right to it."""

    NAME = "access.ended"
    principal: str
    action: str


EVENTS: tuple[type[LogEvent], ...] = (
    WorkerBegun,
    WorkerNameInUse,
    WorkerEnded,
    MonitorBegun,
    DrainBegun,
    DrainEnded,
    LoopBegun,
    LoopResumed,
    LoopEnded,
    TurnDone,
    ModelFailed,
    WorkRetried,
    WorkDead,
    LeaseLost,
    KeysMany,
    ServerAwaited,
    ServerLost,
    ServerFound,
    ServerUnsafe,
    LogFoundEmptied,
    LogFoundOlder,
    LogAccepted,
    ConnectionsRefused,
    AccessRead,
    AccessAllowed,
    AccessRefused,
    AccessEnded,
)
"""All events, in the order of the documentation."""


def write_event(logger: logging.Logger, event: LogEvent, context: LogContext | None = None) -> None:
    """Log an event as one line. Its fields are attributes of the record, as with `extra=`.

    Args:
        logger: the logger of the calling module.
        event: the event.
        context: the common fields; None means the fields of the current task.
    """
    if not logger.isEnabledFor(event.LEVEL):
        return
    values: dict[str, Value] = {"event": event.NAME, **common_fields(context), **asdict(event)}
    shown = (
        f"{name}={','.join(value) if isinstance(value, tuple) else value}"
        for name, value in values.items()
        if name != "event" and value not in {"", None}
    )
    logger.log(event.LEVEL, "%s", " ".join((event.NAME, *shown)), extra=values, stacklevel=2)


def trace_id() -> str:
    """Return the id of the current OpenTelemetry trace, 32 hexadecimal digits; "" if there is none.

    Never imports OpenTelemetry.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:  # without it, no span can be current
        return ""
    context = api.get_current_span().get_span_context()
    return api.format_trace_id(context.trace_id) if context.is_valid else ""


FIELD_MEANINGS = {
    "action": "what was asked for, such as `read.entries` or `command.abort`; empty if the principal is unknown",
    "address": "its URL",
    "agents": "agents that the worker serves",
    "attempt": "number of the failed attempt, from 1",
    "attempts": "failed attempts in all",
    "client": "network address of the client; in `connections.refused`, the address or IPv6 network /64 that has the"
    " most open connections, empty if only trusted proxies have some",
    "client_open": "open connections of `client`",
    "command": "the command that the server's user may not run; empty if it is unknown",
    "concurrency": "most sessions at a time",
    "error": "type of the error, or the server's code such as `NOPERM`",
    "fault": "what is wrong or may be lost, and what to do",
    "found": "when a worker or the page last looked at the copy that the server has, UTC; empty if it does not tell",
    "group": "consumer group",
    "handed_back": "sessions returned to the group unfinished",
    "has_left": "false: its work has to be claimed by other workers",
    "is_transient": "the same request may succeed later",
    "keys": "publish keys that the session remembers",
    "lane": "the lane that is read or written; empty if neither is",
    "letter": "id of the dead letter; empty if another worker has the work",
    "loop": "id of the loop",
    "model": "the model that answered",
    "namespace": "prefix of the bus's keys",
    "open": "open connections",
    "origin": "the origin that `origin_refused` refused, at most 255 characters; empty for other refusals",
    "position": "the session's last position when the loop was resumed",
    "principal": "name of the person or program that asked; empty if unknown",
    "provider": "the model's provider",
    "reason": "stop reason, as in the log",
    "refused": "connections that were refused since the last event",
    "refusal": "why: the name of an HTTP error, or the reason of the access rules",
    "remedy": "what to do",
    "runs": "calls of an agent since the start",
    "seen": "when a worker or the page last looked at the log that was known, UTC",
    "seconds": "pause until the next attempt, duration, time waited, or age of a heartbeat; null if unknown",
    "sessions": "running sessions",
    "status": "HTTP status; null if there is none",
    "tokens": "all tokens",
    "turns": "turns of the loop",
    "what": "what was asked: `heartbeat`, `leases`, `fetch`, `ack`, `work` (what sessions do), `ping`,"
    " `read`, or `open` at the start",
}
"""What the fields of the events mean."""
