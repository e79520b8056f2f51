"""The health of a process, and what it logs: its events and counts, and whether its server answers.

`log_context` has the fields that all lines of a task have in common.
"""

import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import ClassVar, NamedTuple

import anyio

from lanebus.bus import Bus, Histogram, LogLoss, NamespaceLog, moment_of
from lanebus.bus.errors import BusError, LoginRefused, Refused

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


# The health of a process: what it counts, whether its server answers, and whether the bus's log went back.


# Whether the bus's server answers, as seen by the requests that one process repeats.

UNREACHABLE = "unreachable"
"""The value in `ServerHealth.faults` for a request without an answer. For a refused request, the value is the server's
error code, such as NOPERM."""

ACK = "ack"
"""The name in `ServerHealth.faults` of the requests by which a worker finishes work. The worker reports
refusals and successes, not missing answers."""

WORK = "work"
"""The name in `ServerHealth.faults` of all requests by which a worker reads sessions and appends to them. The worker
reports refusals and successes, not missing answers."""

_PROBE = "probe"
"""The session that is read to find missing rights. It is never written."""

_log = logging.getLogger(__name__)


class _Fault(NamedTuple):
    code: str
    """`UNREACHABLE`, or the server's code"""
    command: str = ""
    """the command that the user may not run; "" if the server named none"""
    is_login: bool = False
    """the server refused the user or password"""

    def text(self, what: str) -> str:
        if self.code == UNREACHABLE:
            return f"the server is unreachable: no answer to {what}"
        if self.is_login:
            return f"the server refuses the user or password: {self.code}"
        named = f" for the command {self.command!r}" if self.command else ""
        return f"the server refuses {what}: {self.code}{named}"


class ServerHealth:
    """Stores which repeated requests fail. Logs each kind of fault once per outage, and the end of the outage."""

    def __init__(self, context: LogContext | None = None, found: Callable[[], None] | None = None) -> None:
        """
        Args:
            context: fields of the logged events; None means the fields of the calling task.
            found: called when the last fault ends.
        """
        self._context, self._found = context, found
        self._faults: dict[str, _Fault] = {}
        self._told: set[_Fault] = set()
        self._lost_at = 0.0

    @property
    def faults(self) -> Mapping[str, str]:
        """The fault of each request that failed last time, by request: `UNREACHABLE`, or the server's code."""
        return {what: fault.code for what, fault in self._faults.items()}

    @property
    def reason(self) -> str | None:
        """Why the server cannot be used now, in words for people; None if all requests succeed."""
        for what, fault in self._faults.items():
            return fault.text(what)
        return None

    def note(self, what: str, error: Exception | None) -> None:
        """Store the outcome of a request. Log a kind of fault once per outage, and the end of the outage.

        Args:
            what: a short name of the request, such as "heartbeat".
            error: why the request failed; None if it succeeded.
        """
        if error is not None:
            fault = _Fault(UNREACHABLE)
            if isinstance(error, Refused):
                fault = _Fault(error.code, error.command, isinstance(error, LoginRefused))
            if not self._faults:
                self._lost_at = anyio.current_time()
            self._faults[what] = fault
            if fault not in self._told:  # one line for each kind of fault in an outage, not for each request
                self._told.add(fault)
                write_event(_log, ServerLost(what=what, error=fault.code, command=fault.command), self._context)
        elif self._faults.pop(what, None) is not None and not self._faults:
            self._told.clear()
            seconds = round(anyio.current_time() - self._lost_at, 3)
            write_event(_log, ServerFound(what=what, seconds=seconds), self._context)
            if self._found is not None:
                self._found()


async def watch_server(bus: Bus, health: ServerHealth, *, pause: float, seconds: float) -> None:
    """Check repeatedly, until cancelled, that the bus's servers answer and that the bus's user may read sessions.

    `health` receives the outcomes under the names "ping" and "read". The check reads a session that need not exist.

    Args:
        bus: the bus.
        health: receives the outcomes.
        pause: seconds between two requests.
        seconds: longest time to wait for an answer.
    """

    async def is_answered(what: str, ask: Callable[[], Awaitable[object]]) -> bool:
        try:
            with anyio.fail_after(seconds):
                await ask()
        except (BusError, TimeoutError) as error:
            health.note(what, error)
            return False
        health.note(what, None)
        return True

    while True:
        if await is_answered("ping", bus.monitor.ping):
            await is_answered("read", partial(_read, bus))  # a user that may ping may lack the rights to read
        await anyio.sleep(pause)


async def _read(bus: Bus) -> None:
    async with aclosing(bus.session(_PROBE).read()) as entries:
        async for _ in entries:
            return


class LogWatch:
    """Looks at a namespace every few seconds, and logs what it finds. A worker and `lanebus serve` have one each."""

    def __init__(
        self, namespace: NamespaceLog, context: LogContext | None = None, *, pause: float, seconds: float
    ) -> None:
        """
        Args:
            namespace: what this process knows of the log.
            context: fields of the logged events; None means the fields of the calling task.
            pause: seconds between two looks.
            seconds: longest time of a look.
        """
        self._namespace, self._context, self._pause, self._seconds = namespace, context, pause, seconds
        self._soon, self._trusted = anyio.Event(), anyio.Event()
        self._emptied_at = 0.0

    @property
    def reason(self) -> str | None:
        """Why the log is not served, in words for people; None if it is served."""
        emptied = self._namespace.emptied
        return None if emptied is None else str(emptied)

    def look_soon(self) -> None:
        """End the present pause. For use after the server was unreachable: it may have come back without its log."""
        self._soon.set()

    async def wait_trusted(self) -> None:
        """Wait until a look has found that the log is not emptied. Return at once while the last look says so."""
        await self._trusted.wait()

    async def run(self) -> None:
        """Look until cancelled. A look that is not answered is repeated after the pause."""
        while True:
            self._soon = anyio.Event()
            try:
                with anyio.fail_after(self._seconds):
                    loss = await self._namespace.look()
            except Refused as refusal:
                if refusal.code in {"NOPERM", "WRONGTYPE"}:  # the log cannot be judged, and can be served
                    self._trusted.set()
            except (BusError, TimeoutError):
                pass  # other requests of this process tell of the outage
            else:
                self._note(loss)
            with anyio.move_on_after(self._pause):
                await self._soon.wait()

    def _note(self, loss: LogLoss | None) -> None:
        name, is_emptied = self._namespace.name, self._namespace.emptied is not None
        if loss is not None:
            seen, remedy = moment_of(loss.seen_at), loss.remedy(name)
            if loss.kind == "emptied":
                event: LogFoundEmptied | LogFoundOlder = LogFoundEmptied(namespace=name, seen=seen, remedy=remedy)
            else:
                found = moment_of(loss.found_at)
                event = LogFoundOlder(namespace=name, seen=seen, found=found, remedy=remedy)
            write_event(_log, event, self._context)
        if is_emptied and self._emptied_at == 0.0:
            self._emptied_at, self._trusted = anyio.current_time(), anyio.Event()
        elif not is_emptied:
            if self._emptied_at:
                seconds = round(anyio.current_time() - self._emptied_at, 3)
                write_event(_log, LogAccepted(namespace=name, seconds=seconds), self._context)
                self._emptied_at = 0.0
            self._trusted.set()


# Counters of a worker, or of the connections of a server, since its start, and the present state.

_TURN_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
_OTHER = "other"


class LabelledCounts:
    """Sums by labels, such as tokens by model. Only a limited number of combinations have a sum; all others share one,
    whose labels are "other"."""

    def __init__(self, *names: str, most: int = 200) -> None:
        """
        Args:
            names: the names of the labels.
            most: maximum number of combinations of labels. Later combinations are counted together, with each label
                "other".
        """
        self.names, self._most = names, most
        self._sums: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Add `amount` to the sum of these labels. Pass one label for each name in `names`."""
        if labels not in self._sums and len(self._sums) >= self._most:
            labels = (_OTHER,) * len(self.names)
        self._sums[labels] = self._sums.get(labels, 0.0) + amount

    @property
    def sums(self) -> Mapping[tuple[str, ...], float]:
        """The sum of each combination of labels."""
        return self._sums


@dataclass(slots=True)
class ConnectionCounts:
    """The connections to the page's server."""

    open: int = 0
    """connections that are open now"""
    refused: int = 0
    """connections that were refused, because too many were open"""
    by_address: Counter[str] = field(default_factory=Counter[str])
    """open connections of each address, without those of trusted proxies"""


@dataclass(slots=True)
class WorkerCounts:
    """Counters for monitoring. They only grow."""

    runs: int = 0
    """calls of an agent"""
    leases_lost: int = 0
    """leases that expired, or could not be renewed, while the session was running"""
    rescheduled: int = 0
    """sessions that were scheduled again after an error or a `TryAgain`"""
    retries: int = 0
    """failed attempts that are repeated, including attempts that failed because of the server"""
    given_up: int = 0
    """failures that were recorded in a session's log, with a dead letter"""
    dead_letters: int = 0
    """pieces of work that became dead letters"""
    handed_back: int = 0
    """unfinished sessions that were returned to the group"""
    loops: LabelledCounts = field(default_factory=lambda: LabelledCounts("agent", "outcome"))
    """ended loops by agent and stop reason"""
    turns: LabelledCounts = field(default_factory=lambda: LabelledCounts("agent", "model", "outcome"))
    """ended turns by agent, model and stop reason"""
    turn_seconds: Histogram = field(default_factory=lambda: Histogram(_TURN_SECONDS))
    """duration of the turns that began and ended in this worker"""
    tokens: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "kind"))
    """tokens by model, and by kind: input, output, cache_read or cache_write"""
    cost: LabelledCounts = field(default_factory=lambda: LabelledCounts("model"))
    """US dollars by model, as far as prices are known"""
    prompts: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "cache"))
    """model calls with a known usage, by model, and whether a part of the prompt came from the cache: hit or miss"""
    most_keys: int = 0
    """most publish keys that any session remembers, of those that the worker ran. It is counted now and then"""
    model_failures: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "status"))
    """failed model calls by model and HTTP status; the status is empty if there is none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """The present state of a worker."""

    name: str
    group: str
    concurrency: int
    """maximum number of sessions that run at a time"""
    sessions: int
    """sessions that have a task: running, or waiting to be tried again"""
    leases: int
    """leases that the worker holds and renews"""
    calls: Mapping[str, float]
    """for each agent that the worker serves, seconds since the oldest of its calls that still run began; 0 if none
    runs"""
    abandoned_threads: int
    """threads that still run sync tools whose calls were stopped"""
    is_running: bool
    """whether `run` has begun and not ended"""
    is_draining: bool
    """whether the worker stops after its present sessions"""
