"""The health of a process: what it counts, whether its server answers, and whether the bus's log went back."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import anyio

from lanebus.bus import Bus, Histogram, LogLoss, NamespaceLog, moment_of
from lanebus.bus.errors import BusError, LoginRefused, Refused
from lanebus.handlers.agent.log_events import (
    LogAccepted,
    LogContext,
    LogFoundEmptied,
    LogFoundOlder,
    ServerFound,
    ServerLost,
    write_event,
)

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
