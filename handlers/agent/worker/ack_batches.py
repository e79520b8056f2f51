"""Acknowledgements in batches: a worker gives back leases and acks work of many sessions in one round trip."""

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
    """Releases leases and acks work, soon. No session waits for it: a lease that is not released expires, and work that
    is not acknowledged comes again and finds nothing to do.
    """

    def __init__(
        self, leases: Leases, consumer: Consumer, acknowledged: Callable[[Sequence[Work]], None] | None = None
    ) -> None:
        """
        Args:
            acknowledged: called by `run` with each batch of work that it has acknowledged.
        """
        self._leases, self._consumer, self._acknowledged = leases, consumer, acknowledged
        self._released: list[Lease] = []
        self._done: list[Work] = []
        self._read_up_to: dict[str, int] = {}
        self._some = asyncio.Event()
        self._one_at_a_time = anyio.Lock()

    def release(self, lease: Lease) -> None:
        """Release a lease soon."""
        self._released.append(lease)
        self._some.set()

    def ack(self, work: Work, read_up_to: int) -> None:
        """Acknowledge work soon, of a session that was read up to a position."""
        self._done.append(work)
        self._read_up_to[work.session] = read_up_to
        self._some.set()

    async def run(self) -> None:
        """Do so until cancelled."""
        while True:
            await self._some.wait()
            works = await self.flush()
            if self._acknowledged is not None:
                self._acknowledged(works)

    async def flush(self) -> Sequence[Work]:
        """Do all of it now. Cancelled, it is still to be done.

        Returns:
            What was acknowledged, or was to be.
        """
        async with self._one_at_a_time:
            leases, works, read_up_to = self._released, self._done, self._read_up_to
            self._released, self._done, self._read_up_to = [], [], {}
            self._some = asyncio.Event()
            try:
                # In this order: a worker that gets the session for a message in between finds it free.
                if leases:
                    await self._release(leases)
                # Also if that failed: work that is not acknowledged is kept for as long as this worker lives.
                await self._consumer.ack(*works, seen=read_up_to)
            except Unavailable as error:
                _log.info("%d works were not acknowledged: %s", len(works), error)
            except BaseException:
                self._released, self._done = leases + self._released, works + self._done
                self._read_up_to = read_up_to | self._read_up_to
                self._some.set()
                raise
            return works

    async def _release(self, leases: Sequence[Lease]) -> None:
        try:
            await self._leases.release(leases)
        except Unavailable as error:
            _log.info("%d leases were not given back: %s", len(leases), error)
