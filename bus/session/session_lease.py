"""A session's lease as a resource: acquired for the length of a block, renewed meanwhile, re-entered by its holder."""

from __future__ import annotations

import asyncio
import logging
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Self

import anyio

from lanebus.bus.errors import BusError, Fenced, LeaseHeld, LeaseNotHeld
from lanebus.bus.log.lease import Leases

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from lanebus.bus.log.lease import Lease, LeaseAnswer
    from lanebus.bus.session.resources import SessionResources

__all__ = ("SessionLease",)

_log = logging.getLogger(__name__)

_finishing: set[asyncio.Task[None]] = set()
"""tasks that outlive their cancelled callers; the event loop keeps only weak references"""


class SessionLease:
    """The right to run a session's loop, held for the length of an `async with` block. `Session.lease` makes one.

    Holding: the lease is renewed in the background, three times within its length. After a crash it expires by itself.

    Re-entering: a block inside a block of the same object re-enters, in the same task or in another one; the lease is
    released at the end of the outermost block. Another object waits, even if its holder has the same name.

    Losing: another holder may take over a lease that was not renewed in time. `is_lost` is then true, and a publish
    with `epoch` raises `Fenced`. The block continues: use `wait_lost` to know when to stop.

    Cancellation: a block that is cancelled while it acquires the lease leaves none. A block that is cancelled later
    releases it.
    """

    def __init__(
        self,
        resources: SessionResources,
        holder: str,
        *,
        seconds: float,
        wait: float | None,
        beats: int = 3,
        clean_up: float = 2.0,
    ) -> None:
        """See `Session.lease`.

        Args:
            beats: renewals within `seconds`.
            clean_up: most seconds that a release takes; then the lease is left to expire.
        """
        self.session = resources.id
        # The name alone would take the lease over from another process of the same name.
        self.owner = f"{holder}.{token_urlsafe(6)}"
        """the holder's name and a token that no other object has"""
        self._resources, self._leases = resources, Leases(resources.log)
        self._seconds, self._wait, self._pause, self._clean_up = seconds, wait, seconds / beats, clean_up
        self._entering = anyio.Lock()
        self._depth = 0
        self._lease: Lease | None = None
        self._lost = anyio.Event()
        self._renewal: asyncio.Task[None] | None = None

    @property
    def lease(self) -> Lease:
        """The lease that is held, also after it was lost.

        Raises:
            LeaseNotHeld: outside of the block.
        """
        if self._lease is None:
            raise LeaseNotHeld(self.session)
        return self._lease

    @property
    def epoch(self) -> int:
        """The number to publish with. Raise LeaseNotHeld outside of the block."""
        return self.lease.epoch

    @property
    def is_held(self) -> bool:
        """Whether a block of this object is open, and the lease was not lost as far as is known."""
        return self._lease is not None and not self._lost.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether the lease of the present block was lost: taken over, or not renewed for as long as it lasts."""
        return self._lease is not None and self._lost.is_set()

    async def wait_lost(self) -> None:
        """Wait until the lease is lost. May be cancelled. Raise LeaseNotHeld outside of the block."""
        _ = self.lease
        await self._lost.wait()

    async def __aenter__(self) -> Self:
        """Acquire the lease, or re-enter.

        Raises:
            LeaseHeld: another holder has it, and did not release it within `wait` seconds.
            Fenced: the block to re-enter has lost its lease.
            SessionErased: the session was erased.
            Closed: the bus was closed.
            Unavailable: the server cannot be reached.
        """
        async with self._entering:
            if self._lease is not None:
                if self._lost.is_set():
                    raise Fenced(self.session, self._lease.epoch, self._lease.epoch + 1)
            else:
                self._lost = anyio.Event()
                asked, self._lease = await self._acquire()
                # No task group: blocks of several tasks may share the lease, and end in any order.
                self._renewal = asyncio.create_task(self._renew(self._lease, self._lost, asked))
            self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease at the end of the outermost block. If the server does not answer, the lease expires."""
        self._depth -= 1
        if self._depth:
            return
        lease, renewal = self.lease, self._renewal
        self._lease = self._renewal = None
        if renewal is not None:
            renewal.cancel()
        await self._release(lease)

    async def _acquire(self) -> tuple[float, Lease]:
        """Return when the lease was asked for, on the event loop's clock, and the lease."""
        asked, answer = await self._take()
        wake_ups = self._resources.wake_ups
        with anyio.move_on_after(self._wait), wake_ups.watch(self.session) as watch:
            while answer.lease is None:
                await wake_ups.entered()
                # A release wakes waiting callers; it may have come before the watch began.
                with anyio.move_on_after(min(answer.held_seconds, self._pause)):
                    await watch.wait(0)
                watch.forget()
                asked, answer = await self._take()
        if answer.lease is None:
            raise LeaseHeld(self.session, answer.held_seconds)
        return asked, answer.lease

    async def _take(self) -> tuple[float, LeaseAnswer]:
        asked = anyio.current_time()
        taking = asyncio.ensure_future(self._leases.take(self.session, self.owner, self._seconds))
        try:
            await asyncio.wait((taking,))
        except asyncio.CancelledError:
            await self._finish(self._undo(taking))  # the server may have granted it already
            raise
        return asked, taking.result()

    async def _undo(self, taking: asyncio.Future[LeaseAnswer]) -> None:
        lease = (await taking).lease
        if lease is not None:
            await self._leases.release((lease,))

    async def _release(self, lease: Lease) -> None:
        await self._finish(self._leases.release((lease,)))

    async def _finish(self, work: Coroutine[object, object, None]) -> None:
        """Finish the work in spite of cancellations, within `clean_up` seconds."""

        async def finish() -> None:
            try:
                with anyio.move_on_after(self._clean_up):
                    await work
            except BusError as error:
                _log.info("session %s: the lease is left to expire: %s", self.session, error)

        # A task of its own: a scope does not shield from a cancellation of the task itself.
        task = asyncio.ensure_future(finish())
        _finishing.add(task)
        task.add_done_callback(_finishing.discard)
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))

    async def _renew(self, lease: Lease, lost: anyio.Event, asked: float) -> None:
        """Renew until cancelled, or until the lease is lost.

        Args:
            asked: when the last renewal that succeeded was asked for, on the event loop's clock.
        """
        while True:
            await anyio.sleep(self._pause)
            now = anyio.current_time()
            try:
                with anyio.fail_after(self._pause):
                    is_lost = bool(await self._leases.renew((lease,), self._seconds))
                asked = now
            except (BusError, TimeoutError) as error:
                _log.debug("session %s: the lease was not renewed: %s", self.session, error)
                is_lost = anyio.current_time() - asked > self._seconds
            if is_lost:
                _log.warning("session %s: the lease was lost", self.session)
                lost.set()
                return
