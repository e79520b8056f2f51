"""Batches of acknowledgements: release leases and ack work of many sessions in one round trip."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.consumer import Consumer, Work
from lanebus.bus.log.lease import Lease, Leases

__all__ = ("AckBatcher",)

_log = logging.getLogger(__name__)


class AckBatcher:
    """Releases leases and acks work in the background, so that sessions do not wait.

    A lease that is not released expires. Work that is not acked is delivered again, with nothing left to do.
    """

    def __init__(
        self, leases: Leases, consumer: Consumer, acknowledged: Callable[[Sequence[Work]], None] | None = None
    ) -> None:
        """
        Args:
            acknowledged: called by `run` with each batch of acked work.
        """
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
            if self._acknowledged is not None:
                self._acknowledged(works)

    async def flush(self) -> Sequence[Work]:
        """Send everything now. If `flush` is cancelled, the batch is kept for the next call.

        Returns:
            The work that was acked. If the server was unreachable, this work is delivered again.
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
                await self._consumer.ack(*works, seen=read_up_to, traces=traces)
            except Unavailable as error:
                _log.info("%d units of work were not acked: %s", len(works), error)
            except BaseException:
                self._released, self._done = leases + self._released, works + self._done
                self._read_up_to = read_up_to | self._read_up_to
                self._traces = traces | self._traces
                self._some.set()
                raise
            return works

    async def _release(self, leases: Sequence[Lease]) -> None:
        try:
            await self._leases.release(leases)
        except Unavailable as error:
            _log.info("%d leases were not released: %s", len(leases), error)
