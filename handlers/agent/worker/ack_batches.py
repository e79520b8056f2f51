"""Batches of acknowledgements: release leases and ack work of many sessions in one round trip."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import anyio

from lanebus.bus.errors import Refused, Unavailable
from lanebus.bus.groups.consumer import Consumer
from lanebus.bus.groups.work import Work
from lanebus.bus.log.lease import Lease, Leases
from lanebus.handlers.monitoring.server_health import ACK, ServerHealth

__all__ = ("AckBatcher",)

_log = logging.getLogger(__name__)


class AckBatcher:
    """Releases leases and acks work in the background, so that sessions do not wait.

    A lease that is not released expires. If the server does not answer an ack, the work is delivered again, but its
    session has nothing left to do. If the server refuses an ack, the ack is repeated: a new delivery would count as an
    attempt.
    """

    def __init__(
        self,
        leases: Leases,
        consumer: Consumer,
        acknowledged: Callable[[Sequence[Work]], None] | None = None,
        *,
        health: ServerHealth | None = None,
        pause: float = 1.0,
    ) -> None:
        """
        Args:
            acknowledged: called by `run` with each batch that `flush` returns.
            health: gets the outcomes of "ack"; None makes a new `ServerHealth`.
            pause: seconds between two acks that the server refuses.
        """
        self._health, self._pause = health or ServerHealth(), pause
        self._leases, self._consumer, self._acknowledged = leases, consumer, acknowledged
        self._released: list[Lease] = []
        self._done: list[Work] = []
        self._read_up_to: dict[str, int] = {}
        self._traces: dict[str, str] = {}
        self._some = asyncio.Event()
        self._one_at_a_time = anyio.Lock()

    def release(self, lease: Lease) -> None:
        """Release a lease with the next batch."""
        self._released.append(lease)
        self._some.set()

    def ack(self, work: Work, read_up_to: int, trace: str = "") -> None:
        """Ack work with the next batch.

        Args:
            read_up_to: position up to which the work's session was read.
            trace: trace context in which the work was processed; "" if there is none.
        """
        self._done.append(work)
        self._read_up_to[work.session] = read_up_to
        if trace:
            self._traces[work.session] = trace
        self._some.set()

    async def run(self) -> None:
        """Send batches until cancelled."""
        while True:
            await self._some.wait()
            works = await self.flush()
            if ACK in self._health.faults:
                await anyio.sleep(self._pause)
                self._some.set()
            elif self._acknowledged is not None:
                self._acknowledged(works)

    async def flush(self) -> Sequence[Work]:
        """Send everything now. If `flush` is cancelled, the batch is kept for the next call.

        Returns:
            The work that was sent. If the server was unreachable, this work is delivered again. Empty if the server
            refused the acks; the work is then kept for the next call.
        """
        async with self._one_at_a_time:
            leases, works, read_up_to, traces = self._released, self._done, self._read_up_to, self._traces
            self._released, self._done, self._read_up_to, self._traces = [], [], {}, {}
            self._some = asyncio.Event()
            try:
                # Release first: a worker that then gets the session for a new message finds its lease free.
                if leases:
                    await self._release(leases)
                # Ack even if the release failed: otherwise the work stays with this worker for as long as the worker
                # lives.
                await self._consumer.ack(*works, seen=read_up_to, traces=traces, is_repeated=True)
            except Unavailable as error:
                if isinstance(error, Refused) and error.is_of_server:
                    self._health.note(ACK, error)
                    self._put_back([], works, read_up_to, traces)
                    return ()
                _log.info("%d units of work were not acked: %s", len(works), error)
            except BaseException:
                self._put_back(leases, works, read_up_to, traces)
                self._some.set()
                raise
            # No refused ack is left to repeat, so the worker may fetch: the lost work is delivered to those that do.
            self._health.note(ACK, None)
            return works

    def _put_back(
        self, leases: list[Lease], works: list[Work], read_up_to: dict[str, int], traces: dict[str, str]
    ) -> None:
        self._released, self._done = leases + self._released, works + self._done
        self._read_up_to = read_up_to | self._read_up_to
        self._traces = traces | self._traces

    async def _release(self, leases: Sequence[Lease]) -> None:
        try:
            await self._leases.release(leases)
        except Unavailable as error:
            _log.info("%d leases were not released: %s", len(leases), error)
