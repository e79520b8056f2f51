"""The agents of a bus: how many sessions belong to each, how many wait, and how many workers serve it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.groups.names import all_parts
from lanebus.bus.groups.status import read_heartbeats, read_places
from lanebus.bus.log.batches import batched
from lanebus.bus.wire.keys import AgentBucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.log.log import Log

__all__ = ("AgentStatus", "read_agents", "read_default_agent", "read_live_workers", "store_default_agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """State of one agent over all buckets. `Bus.agents` reads it."""

    name: str
    sessions: int
    """number of sessions that belong to the agent"""
    waiting: int
    """number of the agent's sessions that wait for a worker of the group. If no worker of the group ever served the
    agent, all sessions that ever woke a worker are counted"""
    is_waiting_more: bool
    """whether more sessions wait, because counting stopped at `WorkBounds.lag_sessions` in a bucket"""
    workers: int
    """number of live workers of the group that serve the agent, by the server's clock"""
    is_default: bool
    """whether the agent is the namespace's default agent"""


async def read_agents(log: Log, group: str, default: str) -> list[AgentStatus]:
    """See `Bus.agents`."""
    keys = log.keys
    sessions, workers = await log.agents(), await read_live_workers(log, group)
    fetched = {agent for parts in await all_parts(log) for agent, name in parts if name == group}
    names = sorted({*sessions, *workers, *fetched, default})
    waiting: Counter[str] = Counter()
    more: set[str] = set()
    places = [AgentBucket(bucket, name) for name in names for bucket in range(keys.buckets)]
    for some in batched(places, keys.buckets):
        found = await read_places(log.pool, keys, group, some, log.work, begun=False)
        for place, status in found.items():
            waiting[place.agent] += status.waiting
            if status.is_more:
                more.add(place.agent)
    return [
        AgentStatus(
            name=name,
            sessions=sessions.get(name, 0),
            waiting=waiting[name],
            is_waiting_more=name in more,
            workers=workers[name],
            is_default=name == default,
        )
        for name in names
    ]


async def read_live_workers(log: Log, group: str) -> Counter[str]:
    """Return the number of live consumers of a group that serve each agent. Raises Unavailable."""
    now, heartbeats = await read_heartbeats(log.pool, log.keys, group)
    live = (each for each in heartbeats.values() if now - each.seen < each.period)
    return Counter(_flat(each.agents for each in live))


async def read_default_agent(log: Log) -> str | None:
    """Return the default agent that is stored for the namespace; None if there is none. Raises Unavailable."""
    stored = cast("bytes | None", await log.call("HGET", log.keys.config, "agent"))
    return None if stored is None else stored.decode()


async def store_default_agent(log: Log, name: str) -> None:
    """Store the default agent of the namespace. Raises Unavailable."""
    await log.call("HSET", log.keys.config, "agent", name)


def _flat(lists: Iterable[tuple[str, ...]]) -> Iterable[str]:
    return (name for names in lists for name in names)
