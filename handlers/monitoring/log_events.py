"""The events that workers and servers log, one line each: their names, levels and fields.

A line never contains a message's text, the arguments of a tool, the text of an error or a key. It names the type of an
error.
`docs/reference/logs.md` is made from these classes, and from `log_fields.py`.
"""

import logging
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from lanebus.handlers.monitoring.log_context import LogContext, common_fields

__all__ = (
    "EVENTS",
    "AccessAllowed",
    "AccessEnded",
    "AccessRead",
    "AccessRefused",
    "ConnectionsRefused",
    "DrainBegun",
    "DrainEnded",
    "KeysMany",
    "LeaseLost",
    "LogAccepted",
    "LogEvent",
    "LogFoundEmptied",
    "LogFoundOlder",
    "LoopBegun",
    "LoopEnded",
    "LoopResumed",
    "ModelFailed",
    "MonitorBegun",
    "ServerAwaited",
    "ServerFound",
    "ServerLost",
    "ServerUnsafe",
    "TurnDone",
    "WorkDead",
    "WorkRetried",
    "WorkerBegun",
    "WorkerEnded",
    "WorkerNameInUse",
    "write_event",
)

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
    """A loop ended."""

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
