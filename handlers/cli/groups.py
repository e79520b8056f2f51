"""Check consumer groups and agents that a command names."""

from collections.abc import Sequence

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError
from lanebus.bus.wire.keys import check_group
from lanebus.handlers.cli.errors import NoSuchGroup
from lanebus.handlers.cli.terminal.output import tell

__all__ = ("is_served", "require_groups", "tell_unserved")


async def require_groups(bus: Bus, names: Sequence[str]) -> None:
    """Check that each of these groups exists.

    Raises:
        InvalidName: a name is not valid for a group.
        NoSuchGroup: a group does not exist; the error names the groups that exist.
    """
    for name in names:
        check_group(name)
    known = await bus.groups() if names else ()
    for name in names:
        if name not in known:
            raise NoSuchGroup(name, tuple(known))


async def is_served(bus: Bus, agent: str) -> bool:
    """Return whether a live worker serves an agent. Also return True if the server does not answer."""
    try:
        return agent in await bus.live_workers()
    except BusError:
        return True


def tell_unserved(agent: str, *, can_hand_over: bool = True) -> None:
    """Tell the user that no worker serves the agent of a session yet. A worker that is just starting is not known yet.

    Args:
        agent: the agent.
        can_hand_over: whether to advise a handover. False after one.
    """
    other = ", or hand the session over with `lanebus hand-over`" if can_hand_over else ""
    tell(
        f"no worker serves the agent {agent} yet: the session waits until one does. "
        f"Unless one is just starting, start it with `lanebus worker`{other}"
    )
