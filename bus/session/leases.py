"""Methods of `Session` for workers: acquire, renew and release its lease, and wait for wake-ups."""

from lanebus.bus.log.lease import Lease, Leases
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Cursor

__all__ = ("acquire_lease", "release_lease", "renew_lease", "wait_for_wake_up")


async def acquire_lease(self: HasResources, owner: str, seconds: float) -> Lease | None:
    """Acquire the right to run this session's loop.

    If another owner holds the lease, its release wakes the workers, so there is no need to poll. If the call is
    cancelled, the lease may have been acquired; it then expires after `seconds`.

    Args:
        owner: name of the worker. An owner that holds the lease gets it again, with the next epoch.
        seconds: how long the lease lasts unless it is renewed.

    Returns:
        The lease, or None if another owner's lease has not expired.

    Raises:
        SessionErased: the session was erased.
        Unavailable: the server cannot be reached.
    """
    return (await Leases(self.resources.log).take(self.resources.id, owner, seconds)).lease


async def renew_lease(self: HasResources, lease: Lease, seconds: float) -> bool:
    """Extend a lease.

    Args:
        lease: the lease, as `acquire_lease` returned it.
        seconds: how long it lasts from now.

    Returns:
        False if the lease is lost: it was released, another owner acquired it, or the session was erased.

    Raises:
        Unavailable: the server cannot be reached. The lease may be extended.
    """
    return not await Leases(self.resources.log).renew((lease,), seconds)


async def release_lease(self: HasResources, lease: Lease) -> None:
    """Release a lease. Do nothing if it is lost already.

    Wakes the workers if another owner tried to acquire the lease meanwhile.

    Args:
        lease: the lease, as `acquire_lease` returned it.

    Raises:
        Unavailable: the server cannot be reached. The lease expires by itself.
    """
    await Leases(self.resources.log).release((lease,))


async def wait_for_wake_up(self: HasResources, after: Cursor) -> None:
    """Wait until an entry after a cursor wakes the workers. Spurious wake-ups are possible.

    Returns at once if the session already has any entry after the cursor. Otherwise returns a few milliseconds after
    the wake-up: one reader, which runs only while a call waits, serves all sessions of the process.

    Args:
        after: cursor of the last entry that the caller has seen.

    Raises:
        Closed: the bus was closed.
        Unavailable: the server cannot be reached when the call starts. A connection lost later is restored.
    """
    with self.resources.wake_ups.watch(self.resources.id) as watch:
        await self.resources.wake_ups.entered()
        watch.forget()  # the head read below covers every earlier wake-up
        if (await self.resources.log.head(self.resources.id)).position <= after.position:
            await watch.wait(after.position)
