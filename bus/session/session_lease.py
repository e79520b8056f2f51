"""A session's lease as a resource, held and renewed for the length of an `async with` block."""

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
"""tasks whose callers were cancelled. The set keeps them alive: the event loop has only weak references to tasks"""


class SessionLease:
    """The right to run a session's loop, held for the length of an `async with` block. `Session.lease` creates the
    object.

    Holding: the lease is renewed in the background, three times in `seconds`. After a crash, the lease expires.

    Re-entering: while a block of the object is open, another block of the same object shares the lease, in any task.
    The lease is released at the end of the last open block. A block of another object waits, even if both objects have
    the same holder name.

    Losing: another holder may take over a lease that was not renewed in time. `is_lost` is then true, and a publish
    with `epoch` raises `Fenced`. The block continues: use `wait_lost` to know when to stop.

    Cancellation: a block that is cancelled while it acquires the lease does not keep the lease. A block that is
    cancelled later releases the lease.
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
            beats: number of renewals within `seconds`.
            clean_up: longest time in seconds to wait for a release. After that, the lease is left to expire.
        """
        self.session = resources.id
        # The token is needed: with the holder's name alone, a process would take over the lease of another process
        # that uses the same name.
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
        """The lease of the open block, even if it was lost.

        Raises:
            LeaseNotHeld: no block is open.
        """
        if self._lease is None:
            raise LeaseNotHeld(self.session)
        return self._lease

    @property
    def epoch(self) -> int:
        """The lease's epoch, to pass to `publish`. Raises LeaseNotHeld if no block is open."""
        return self.lease.epoch

    @property
    def is_held(self) -> bool:
        """Whether a block of this object is open, and this process has not noticed a loss of the lease."""
        return self._lease is not None and not self._lost.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether a block is open and the lease was lost: taken over, or not renewed for `seconds`."""
        return self._lease is not None and self._lost.is_set()

    async def wait_lost(self) -> None:
        """Wait until the lease is lost. Raises LeaseNotHeld if no block is open. Cancelling the wait is safe."""
        _ = self.lease
        self._resources.origin.check_running()
        await self._lost.wait()

    async def __aenter__(self) -> Self:
        """Acquire the lease. If another block of this object is open, share the lease of that block.

        Raises:
            LeaseHeld: another holder has the lease, and did not release it within `wait` seconds.
            Fenced: a block of this object is open, but its lease is lost.
            SessionErased: the session was erased.
            Closed: the bus was closed.
            Unavailable: the server cannot be reached.
        """
        self._resources.origin.check_running()
        async with self._entering:
            if self._lease is not None:
                if self._lost.is_set():
                    raise Fenced(self.session, self._lease.epoch, self._lease.epoch + 1)
            else:
                self._lost = anyio.Event()
                asked, self._lease = await self._acquire()
                # Not a task group: blocks of several tasks may share the lease and end in any order.
                self._renewal = asyncio.create_task(self._renew(self._lease, self._lost, asked))
            self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lease at the end of the last open block. If the server does not answer, the lease expires."""
        self._depth -= 1
        if self._depth:
            return
        lease, renewal = self.lease, self._renewal
        self._lease = self._renewal = None
        if renewal is not None:
            renewal.cancel()
        await self._release(lease)

    async def _acquire(self) -> tuple[float, Lease]:
        """Acquire the lease. Return the time of the request, on the event loop's clock, and the lease."""
        asked, answer = await self._take()
        wake_ups = self._resources.wake_ups
        with anyio.move_on_after(self._wait), wake_ups.watch(self.session) as watch:
            while answer.lease is None:
                await wake_ups.entered()
                # A release wakes this wait. The time limit is for a release that came before the watch began.
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
            await self._finish(self._undo(taking))  # the server may already have granted the lease
            raise
        return asked, taking.result()

    async def _undo(self, taking: asyncio.Future[LeaseAnswer]) -> None:
        lease = (await taking).lease
        if lease is not None:
            await self._leases.release((lease,))

    async def _release(self, lease: Lease) -> None:
        await self._finish(self._leases.release((lease,)))

    async def _finish(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` to its end even if the caller is cancelled, for at most `clean_up` seconds."""

        async def finish() -> None:
            try:
                with anyio.move_on_after(self._clean_up):
                    await work
            except BusError as error:
                _log.info("session %s: the lease is left to expire: %s", self.session, error)

        # `work` gets its own task, because a shielded scope does not protect it from a cancellation of this task.
        task = asyncio.ensure_future(finish())
        _finishing.add(task)
        task.add_done_callback(_finishing.discard)
        with anyio.CancelScope(shield=True):
            await asyncio.wait((task,))

    async def _renew(self, lease: Lease, lost: anyio.Event, asked: float) -> None:
        """Renew the lease until this task is cancelled or the lease is lost.

        Args:
            asked: time of the request that acquired the lease, on the event loop's clock.
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
