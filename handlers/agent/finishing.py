"""What a worker is done with: leases given back and work acknowledged, those of many sessions in one round trip."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import anyio

from bus.consumer import Consumer, Work
from bus.errors import Unavailable
from bus.leases import Leases
from bus.log import Lease

__all__ = ("Finishing",)

_log = logging.getLogger(__name__)


class Finishing:
    """Nobody waits for it: a lease that was not given back runs out, work that was not acknowledged comes
    again and finds nothing to do.
    """

    def __init__(
        self, leases: Leases, consumer: Consumer, acknowledged: Callable[[Sequence[Work]], None] | None = None
    ) -> None:
        """`acknowledged` is called by `run` with what it has acknowledged."""
        self._leases, self._consumer, self._acknowledged = leases, consumer, acknowledged
        self._released: list[Lease] = []
        self._done: list[Work] = []
        self._seen: dict[str, int] = {}
        self._some = asyncio.Event()
        self._one_at_a_time = anyio.Lock()

    def release(self, lease: Lease) -> None:
        """Give a lease back soon."""
        self._released.append(lease)
        self._some.set()

    def ack(self, work: Work, seen: int) -> None:
        """Acknowledge work soon, of a session that was looked at up to a position."""
        self._done.append(work)
        self._seen[work.session] = seen
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
            leases, works, seen = self._released, self._done, self._seen
            self._released, self._done, self._seen = [], [], {}
            self._some = asyncio.Event()
            try:
                # In this order: who is given the session for a message that comes in between finds it free.
                if leases:
                    await self._release(leases)
                # Also where that failed: what is not let go of counts as in hand, and is kept for as long as we live.
                await self._consumer.ack(*works, seen=seen)
            except Unavailable as error:
                _log.info("%d works were not acknowledged: %s", len(works), error)
            except BaseException:
                self._released, self._done = leases + self._released, works + self._done
                self._seen = seen | self._seen
                self._some.set()
                raise
            return works

    async def _release(self, leases: Sequence[Lease]) -> None:
        try:
            await self._leases.release(leases)
        except Unavailable as error:
            _log.info("%d leases were not given back: %s", len(leases), error)
