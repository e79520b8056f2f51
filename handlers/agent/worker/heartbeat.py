"""A worker's heartbeat: renews all leases and work of the worker together, a few times in each period."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from lanebus.bus.errors import Refused, Unavailable
from lanebus.bus.groups.consumer import Consumer
from lanebus.bus.groups.work import Work
from lanebus.bus.log.lease import Lease, Leases
from lanebus.handlers.agent.bounds import DEFAULT_WORKER_BOUNDS
from lanebus.handlers.monitoring.server_health import ServerHealth

__all__ = ("Heartbeat",)


@dataclass(slots=True)
class _Held:
    lease: Lease
    renewed: float
    """time at which the last successful renewal was sent, by the local clock; on the server the lease lasts a little
    longer"""
    lost: Callable[[], None]


class Heartbeat:
    """Renews the leases and the work that this worker holds.

    The server's clock decides when a session can be taken over, and the lease's epoch fences appends. The local clock
    only ends work that another worker has probably taken over.
    """

    def __init__(
        self,
        leases: Leases,
        consumer: Consumer,
        seconds: float,
        gone: Callable[[Sequence[Work]], None],
        *,
        beats: int = DEFAULT_WORKER_BOUNDS.renewals,
        health: ServerHealth | None = None,
    ) -> None:
        """
        Args:
            seconds: if this worker is silent for so long, other workers take its sessions over.
            gone: called with work that another worker has claimed.
            beats: renewals in each period of `seconds`.
            health: gets the outcomes of "heartbeat", "leases" and "fetch"; None makes a new `ServerHealth`.
        """
        self._leases, self._consumer, self._seconds, self._gone = leases, consumer, seconds, gone
        self._pause = seconds / beats
        self.health = health or ServerHealth()
        """whether the server answers"""
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def holding(self, lease: Lease, asked: float, lost: Callable[[], None]) -> Generator[None, None, None]:
        """Renew a lease for the length of the block.

        Args:
            asked: time at which the lease was requested, by the event loop's clock.
            lost: called once if the lease expired, or if the server was unreachable for longer than the lease.
        """
        held = self._held[lease.session] = _Held(lease, asked, lost)
        try:
            yield
        finally:
            if self._held.get(lease.session) is held:
                del self._held[lease.session]

    def end(self, lease: Lease) -> None:
        """Renew a lease no longer. Call this before the lease is released, or its end is reported as a loss."""
        if (held := self._held.get(lease.session)) is not None and held.lease == lease:
            del self._held[lease.session]

    async def begin(self) -> None:
        """Send the first heartbeat, which registers the worker. `run` reports and retries all errors but a missing
        right.

        Raises:
            Refused: the server's user lacks a right (code NOPERM).
        """
        try:
            with anyio.move_on_after(self._pause):
                await self._consumer.heartbeat()
        except Unavailable as error:
            if isinstance(error, Refused) and error.code == "NOPERM":
                raise

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await anyio.sleep(self._pause)
            await self._renew()
            try:
                with anyio.fail_after(self._pause):
                    self._gone(await self._consumer.heartbeat())
            except (Unavailable, TimeoutError) as error:
                self.health.note("heartbeat", error)
            else:
                if self._consumer.is_answered:  # else another task has a request under way, and this one sent nothing
                    self.health.note("heartbeat", None)
            self.health.note("fetch", self._consumer.fetch_fault)

    async def _renew(self) -> None:
        held, asked = tuple(self._held.values()), anyio.current_time()
        if not held:
            self.health.note("leases", None)
            return
        try:
            with anyio.fail_after(self._pause):
                lost = {*await self._leases.renew([each.lease for each in held], self._seconds)}
        except (Unavailable, TimeoutError) as error:
            self.health.note("leases", error)
            # End only leases that were not renewed for `seconds`. After a pause of this process, the server knows
            # better.
            late = anyio.current_time() - self._seconds
            self._end([each for each in held if each.renewed < late])
            return
        self.health.note("leases", None)
        for each in held:
            each.renewed = asked
        self._end([each for each in held if each.lease in lost])

    def _end(self, ended: Sequence[_Held]) -> None:
        for each in ended:
            if self._held.get(each.lease.session) is each:
                del self._held[each.lease.session]
                each.lost()
