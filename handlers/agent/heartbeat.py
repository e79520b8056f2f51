"""A worker's sign of life for all that it has in hand: leases and work, together, a few times a heartbeat."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from bus.consumer import Consumer, Work
from bus.errors import Unavailable
from bus.leases import Leases
from bus.log import Lease
from handlers.agent.bounds import DEFAULT_WORKER_BOUNDS

__all__ = ("Heartbeat",)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    lease: Lease
    renewed: float
    """on our own clock, when the last renewal that succeeded was asked for: the lease lasts a little longer"""
    lost: Callable[[], None]


class Heartbeat:
    """Renews what is held. Whose lease is lost is told so, and so is who cannot know: nobody could be asked for longer
    than a lease lasts.

    The server's clock decides who may take a session over, and its epoch what may be written. Our own clock only ends
    work that is probably another's by now.
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

    def hold(self, lease: Lease, taken: float, lost: Callable[[], None]) -> None:
        """Keep a lease from now on.

        Args:
            taken: when it was asked for, on the event loop's clock.
            lost: called once where it is lost.
        """
        self._held[lease.session] = _Held(lease, taken, lost)

    def let_go(self, lease: Lease) -> None:
        """Keep a lease no longer."""
        held = self._held.get(lease.session)
        if held is not None and held.lease == lease:
            del self._held[lease.session]

    async def run(self) -> None:
        """Give signs of life until cancelled."""
        while True:
            await anyio.sleep(self._pause)
            await self._renew()
            try:
                with anyio.fail_after(self._pause):
                    self._gone(await self._consumer.keep())
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
            # Only who could not ask for so long: after a pause the answer tells more than our clock does.
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
