"""Remove a session from the waiting work after a loop outside workers has done the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanebus.bus.log.script import Script

if TYPE_CHECKING:
    from lanebus.bus.log.lease import Lease
    from lanebus.bus.log.log import Log

__all__ = ("finish_recorded",)

_FINISH = Script("finish_recorded")


async def finish_recorded(log: Log, lease: Lease, position: int) -> None:
    """Record that nothing is left to do in a session up to a position, if no worker serves the session's agent.

    Do nothing if a group has fetched work of the agent, if the lease is over, or if a later entry woke the session.

    Args:
        log: the log of the bus.
        lease: the lease under which the work was done, with the session's agent.
        position: position up to which the work is done.

    Raises:
        Refused: a key has the wrong type.
        Unavailable: the server did not answer.
    """
    keys, session, agent = log.keys, lease.session, lease.agent
    bucket = keys.bucket(session)
    names = (keys.order(bucket, agent), keys.woken(bucket), keys.groups(bucket), keys.head(session))
    await log.run(_FINISH, names, (session, agent, lease.epoch, position))
