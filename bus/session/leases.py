"""Who runs `Session`'s loop, and how it is woken. Each function is a method of it."""

from lanebus.bus.log.lease import Lease, Leases
from lanebus.bus.session.resources import HasResources
from lanebus.bus.wire.envelope import Cursor

__all__ = ("acquire_lease", "release_lease", "renew_lease", "wait_for_wake_up")


async def acquire_lease(self: HasResources, owner: str, seconds: float) -> Lease | None:
    """Acquire the right to run this session's loop; None if another owner's lease has not expired. The workers are
    woken once that owner releases it. Raise SessionErased if the session was erased."""
    return (await Leases(self.resources.log).take(self.resources.id, owner, seconds)).lease


async def renew_lease(self: HasResources, lease: Lease, seconds: float) -> bool:
    """Hold a lease for longer; False if it is lost, also if its session is erased."""
    return not await Leases(self.resources.log).renew((lease,), seconds)


async def release_lease(self: HasResources, lease: Lease) -> None:
    """Release a lease; nothing happens if it is lost already."""
    await Leases(self.resources.log).release((lease,))


async def wait_for_wake_up(self: HasResources, after: Cursor) -> None:
    """Wait for a wake-up after `after`. Spurious wake-ups are possible, and entries after the cursor count as one.

    It comes a few milliseconds late: one reader serves all sessions of the process, and none reads if none waits.

    Raises:
        Closed: the bus was closed.
        Unavailable: the server cannot be reached at the start; later it is waited for.
    """
    with self.resources.ringing.watch(self.resources.id) as watch:
        await self.resources.ringing.entered()
        watch.forget()  # for it is behind the cursor, and seen here, or was heard for another
        if (await self.resources.log.head(self.resources.id)).position <= after.position:
            await watch.wait(after.position)
