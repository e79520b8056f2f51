"""Leases of a session, for workers: acquire, renew and release, or hold one for an `async with` block; and wake-ups."""

from __future__ import annotations

import asyncio
import logging
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Self

import anyio

from lanebus.bus.errors import (
    BusError,
    Fenced,
    LeaseHeld,
    LeaseNotHeld,
    require_seconds,
    require_text,
)
from lanebus.bus.log.lease import Lease, Leases
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from lanebus.bus.log.lease import LeaseAnswer
    from lanebus.bus.session.resources import SessionResources


def lease(self: HasResources, holder: str, *, seconds: float = 30.0, wait: float | None = None) -> SessionLease:
    """Return a lease of this session for `async with`. The block acquires the lease, renews it, and releases it at the
    end.

        async with session.lease("host-1") as lease:
            await session.publish(message, epoch=lease.epoch)

    Only one holder runs a session's loop at a time. A nested block of the same object re-enters the lease. A block of
    another object waits, even if both objects have the same holder name.

    Args:
        holder: name of the holder, shown by monitoring. It need not be unique.
        seconds: how long the lease lasts without a renewal. After a crash the next holder waits up to this long.
        wait: maximum number of seconds to wait for another holder's lease; None means unlimited, 0 does not wait.
    """
    require_text("holder", holder, is_filled=True)
    require_seconds("seconds", seconds, is_positive=True)
    require_seconds("wait", wait, is_optional=True)
    return SessionLease(self.resources, holder, seconds=seconds, wait=wait)


async def acquire_lease(self: HasResources, owner: str, seconds: float) -> Lease | None:
    """Acquire the right to run this session's loop.

    If another owner holds the lease, there is no need to poll: the release of the lease wakes the workers. If the call
    is cancelled, the lease may have been acquired; it then expires after `seconds`.

    Args:
        owner: name of the worker. An owner that already holds the lease acquires it again, with the next epoch.
        seconds: how long the lease lasts unless it is renewed.

    Returns:
        The lease, or None if another owner's lease has not expired.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    require_text("owner", owner, is_filled=True)
    require_seconds("seconds", seconds, is_positive=True)
    return (await Leases(self.resources.log).take(self.resources.id, owner, seconds)).lease


async def renew_lease(self: HasResources, lease: Lease, seconds: float) -> bool:
    """Extend a lease.

    Args:
        lease: the lease, as `acquire_lease` returned it.
        seconds: how long the lease lasts from now.

    Returns:
        False if the lease is lost: it was released, another owner acquired it, or the session was erased.

    Raises:
        Unavailable: the server cannot be reached. The lease may be extended.
    """
    require_seconds("seconds", seconds, is_positive=True)
    return not await Leases(self.resources.log).renew((lease,), seconds)


async def release_lease(self: HasResources, lease: Lease) -> None:
    """Release a lease. Do nothing if the lease is already lost.

    The release wakes the workers if another owner tried to acquire the lease while it was held.

    Args:
        lease: the lease, as `acquire_lease` returned it.

    Raises:
        Unavailable: the server cannot be reached. The lease then expires.
    """
    await Leases(self.resources.log).release((lease,))


async def wait_for_wake_up(self: HasResources, after: Cursor | str) -> None:
    """Wait until an entry after a cursor wakes the workers. Spurious wake-ups are possible.

    Returns at once if the session already has an entry after the cursor. Otherwise returns a few milliseconds after
    the wake-up.

    Args:
        after: cursor of the last entry that the caller has seen.

    Raises:
        Closed: the bus was closed.
        Unavailable: the server cannot be reached when the call starts. A connection lost later is restored.
    """
    seen = Cursor.of(after)
    with self.resources.wake_ups.watch(self.resources.id) as watch:
        await self.resources.wake_ups.entered()
        watch.forget()  # the head is read after every wake-up received so far, so it covers them
        if (await self.resources.log.head(self.resources.id)).position <= seen.position:
            await watch.wait(seen.position)


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
