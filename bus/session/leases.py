"""Methods of `Session` for workers: acquire, renew and release the session's lease, and wait for wake-ups."""

from lanebus.bus.errors import require_instance, require_seconds, require_text
from lanebus.bus.log.lease import Lease, Leases
from lanebus.bus.session.resources import HasResources
from lanebus.bus.session.session_lease import SessionLease
from lanebus.bus.wire.envelope import Cursor

__all__ = ("acquire_lease", "lease", "release_lease", "renew_lease", "wait_for_wake_up")

_LEASE = "pass the lease that `acquire_lease` returned"


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
    require_instance("lease", lease, Lease, _LEASE)
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
    require_instance("lease", lease, Lease, _LEASE)
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
