"""Look repeatedly at whether the log of a namespace was emptied or went back, and tell of it."""

import logging

import anyio

from lanebus.bus.errors import BusError, Refused
from lanebus.bus.log.namespace import LogLoss, NamespaceLog, moment_of
from lanebus.handlers.monitoring.log_context import LogContext
from lanebus.handlers.monitoring.log_events import LogAccepted, LogFoundEmptied, LogFoundOlder, write_event

__all__ = ("LogWatch",)

_log = logging.getLogger(__name__)


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
