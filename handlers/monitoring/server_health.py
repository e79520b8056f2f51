"""Whether the bus's server answers, as seen by the requests that one process repeats."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, LoginRefused, Refused
from lanebus.handlers.monitoring.log_context import LogContext
from lanebus.handlers.monitoring.log_events import ServerFound, ServerLost, write_event

__all__ = ("ACK", "UNREACHABLE", "WORK", "ServerHealth", "watch_server")

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
