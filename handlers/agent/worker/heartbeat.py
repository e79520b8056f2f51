"""A worker's heartbeat for all that it holds: leases and work, together, a few times in each period."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from lanebus.bus.errors import Unavailable
from lanebus.bus.groups.consumer import Consumer, Work
from lanebus.bus.log.lease import Lease, Leases
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS

__all__ = ("Heartbeat",)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    lease: Lease
    renewed: float
    """on our own clock, when the last renewal that succeeded was asked for: the lease lasts a little longer"""
    lost: Callable[[], None]


class Heartbeat:
    """Renews the leases and the work that this worker holds.

    The server's clock decides when a session may be taken over, and the lease's epoch what may be written. This
    worker's clock only ends work that another worker has probably taken over.
    """

    def __init__(
        self,
        leases: Leases,
        consumer: Consumer,
        seconds: float,
        gone: Callable[[Sequence[Work]], None],
        *,
        beats: int = DEFAULT_WORKER_BOUNDS.beats,
    ) -> None:
        """
        Args:
            seconds: after which a silent worker's sessions are taken over.
            gone: called with work that is another one's by now.
            beats: signs of life in this time.
        """
        self._leases, self._consumer, self._seconds, self._gone = leases, consumer, seconds, gone
        self._pause = seconds / beats
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def holding(self, lease: Lease, asked: float, lost: Callable[[], None]) -> Generator[None, None, None]:
        """Renew a lease for the length of the block.

        Args:
            asked: when it was asked for, on the event loop's clock.
            lost: called once if the lease expired, or if the server was unreachable for longer than it lasts.
        """
        held = self._held[lease.session] = _Held(lease, asked, lost)
        try:
            yield
        finally:
            if self._held.get(lease.session) is held:
                del self._held[lease.session]

    async def run(self) -> None:
        """Give signs of life until cancelled."""
        while True:
            await anyio.sleep(self._pause)
            await self._renew()
            try:
                with anyio.fail_after(self._pause):
                    self._gone(await self._consumer.heartbeat())
            except (Unavailable, TimeoutError) as error:
                _log.debug("no sign of life: %s", error)

    async def _renew(self) -> None:
        held, asked = tuple(self._held.values()), anyio.current_time()
        if not held:
            return
        try:
            with anyio.fail_after(self._pause):
                lost = {*await self._leases.renew([each.lease for each in held], self._seconds)}
        except (Unavailable, TimeoutError):
            # Only leases that could not be renewed for so long: after a pause the answer tells more than our clock.
            late = anyio.current_time() - self._seconds
            self._end([each for each in held if each.renewed < late])
            return
        for each in held:
            each.renewed = asked
        self._end([each for each in held if each.lease in lost])

    def _end(self, ended: Sequence[_Held]) -> None:
        for each in ended:
            if self._held.get(each.lease.session) is each:
                del self._held[each.lease.session]
                each.lost()
