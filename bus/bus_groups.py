"""Methods of `Bus` about consumer groups: list them, show their work, remove them, and read their dead letters and
leases."""

from collections.abc import Collection

from lanebus.bus.bus_agents import HasLog
from lanebus.bus.groups import status
from lanebus.bus.groups.failed_work import DeadLetters, FailedWorks
from lanebus.bus.groups.status import GroupStatus, LeaseStatus, all_group_names, read_leases
from lanebus.bus.wire.keys import check_group


def dead_letters(self: HasLog, group: str) -> DeadLetters:
    """Return the dead letters of a group. No I/O.

    Args:
        group: name of the group.

    Raises:
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    return DeadLetters(self.log, check_group(group))


def failed_work(self: HasLog) -> FailedWorks:
    """Return a reader of the work that is tried again or became a dead letter, over all groups. No I/O."""
    return FailedWorks(self.log)


async def groups(self: HasLog) -> tuple[str, ...]:
    """Return the names of all groups that have ever fetched work and were not removed, sorted.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return await all_group_names(self.log)


async def group_status(self: HasLog, group: str) -> GroupStatus:
    """Return a group's consumers, how much work they have, and how much waits. All zeros if the group does not exist.

    Args:
        group: name of the group.

    Raises:
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    return await status.read_group(self.log, check_group(group), self.log.work)


async def remove_group(self: HasLog, group: str, *, force: bool = False) -> bool:
    """Remove a group: its pending work, its dead letters and its position. The group no longer blocks trims.

    Sessions do not change. A later consumer with the same group name creates a new group. If the call is cancelled
    or fails, a part of the group may already be removed; repeat the call.

    Args:
        group: name of the group.
        force: remove the group even if it has live consumers.

    Returns:
        Whether the group existed.

    Raises:
        GroupInUse: the group has live consumers, by the server's clock. Nothing was removed.
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    return await status.remove_group(self.log, check_group(group), force=force)


async def lease_status(self: HasLog, sessions: Collection[str]) -> list[LeaseStatus]:
    """Return which worker owns the lease of each session, for monitoring.

    A lease may be lost after this call. To be sure that a worker still has it, publish with the lease's epoch.

    Args:
        sessions: the ids of the sessions. A session that does not exist has no owner.

    Returns:
        One status per id, in the order of `sessions`.

    Raises:
        InvalidSessionId: an id does not match `[A-Za-z0-9_-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    statuses = {each.session: each for each in await read_leases(self.log.pool, self.log.keys, sessions)}
    return [statuses[session] for session in sessions]
