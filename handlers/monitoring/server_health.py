"""Whether the bus's server answers, as seen by the requests that one process repeats."""

import logging
from collections.abc import Mapping

import anyio

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError, Refused
from lanebus.handlers.monitoring.log_context import LogContext
from lanebus.handlers.monitoring.log_events import ServerFound, ServerLost, write_event

__all__ = ("UNREACHABLE", "ServerHealth", "watch_server")

UNREACHABLE = "unreachable"
"""The fault of a request without an answer. A refused request has the server's code as its fault, such as NOPERM."""

_log = logging.getLogger(__name__)


class ServerHealth:
    """Notes the outcome of repeated requests, and logs once when the server is lost and found."""

    def __init__(self, context: LogContext | None = None) -> None:
        """
        Args:
            context: fields of the logged events; None means those of the calling task.
        """
        self._context = context
        self._faults: dict[str, str] = {}
        self._told: set[str] = set()
        self._lost_at = 0.0

    @property
    def faults(self) -> Mapping[str, str]:
        """The fault of each request that failed last time: `UNREACHABLE`, or the server's code."""
        return self._faults

    @property
    def reason(self) -> str | None:
        """Why the server is of no use now, for people; None if all requests succeed."""
        for what, fault in self._faults.items():
            if fault == UNREACHABLE:
                return f"the server is unreachable: no answer to {what}"
            return f"the server refuses {what}: {fault}"
        return None

    def note(self, what: str, error: Exception | None) -> None:
        """Note the outcome of a request.

        Args:
            what: a short name of the request, such as "heartbeat".
            error: why it failed; None if it succeeded.
        """
        if error is not None:
            fault = error.code if isinstance(error, Refused) else UNREACHABLE
            if not self._faults:
                self._lost_at = anyio.current_time()
            self._faults[what] = fault
            if fault not in self._told:  # one line for each kind of fault in an outage, not for each request
                self._told.add(fault)
                write_event(_log, ServerLost(what=what, error=fault), self._context)
        elif self._faults.pop(what, None) is not None and not self._faults:
            self._told.clear()
            seconds = round(anyio.current_time() - self._lost_at, 3)
            write_event(_log, ServerFound(what=what, seconds=seconds), self._context)


async def watch_server(bus: Bus, health: ServerHealth, *, pause: float, seconds: float) -> None:
    """Ask the bus's servers for a sign of life until cancelled, and note the answers as "ping".

    Args:
        bus: the bus.
        health: gets the outcomes.
        pause: seconds between two requests.
        seconds: most seconds to wait for an answer.
    """
    while True:
        try:
            with anyio.fail_after(seconds):
                await bus.monitor.ping()
        except (BusError, TimeoutError) as error:
            health.note("ping", error)
        else:
            health.note("ping", None)
        await anyio.sleep(pause)
