"""The agents of a bus: how many sessions belong to each, how many wait, and how many workers serve it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lanebus.bus.groups.names import all_group_names, all_parts
from lanebus.bus.groups.status import read_heartbeats, read_places, work_by_agent
from lanebus.bus.wire.keys import DEFAULT_AGENT, AgentBucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanebus.bus.groups.status import AgentWork, PlaceStatus
    from lanebus.bus.log.log import Log

__all__ = (
    "AgentStatus",
    "is_known_agent",
    "read_agents",
    "read_default_agent",
    "read_live_workers",
    "read_unfetched_work",
    "store_default_agent",
)

DEFAULT_GROUP = "agents"
"""the group of a worker that is started without a group"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """State of one agent over all buckets. `Bus.agents` reads it."""

    name: str
    sessions: int
    """number of sessions that belong to the agent"""
    waiting: int
    """number of the agent's sessions that wait for a worker. If no worker ever served the agent, all sessions that ever
    woke a worker are counted, except those whose work a `Recorder` has done. If several groups serve the agent, this is
    the largest of their numbers"""
    is_waiting_more: bool
    """whether more sessions may wait than `waiting`: counting stopped at `WorkBounds.lag_sessions` in a bucket"""
    workers: int
    """number of live workers that serve the agent, by the server's clock"""
    is_default: bool
    """whether the agent is the namespace's default agent"""


async def read_agents(log: Log, group: str | None, default: str) -> list[AgentStatus]:
    """See `Bus.agents`."""
    sessions, workers = await log.agents(), await read_live_workers(log, group)
    fetching = await _fetching_groups(log)
    statuses: list[AgentStatus] = []
    for name in sorted(
        {*sessions, *workers, default, *(each for each, by in fetching.items() if group in {None, *by})}
    ):
        groups = fetching.get(name, ()) if group is None else (group,)
        waiting, has_more = 0, False
        for each in groups or (DEFAULT_GROUP,):
            places = (await _read_agent(log, each, name)).values()
            waiting = max(waiting, sum(place.waiting for place in places))
            has_more = has_more or any(place.is_more for place in places)
        statuses.append(
            AgentStatus(
                name=name,
                sessions=sessions.get(name, 0),
                waiting=waiting,
                is_waiting_more=has_more,
                workers=workers[name],
                is_default=name == default,
            )
        )
    return statuses


async def is_known_agent(log: Log, name: str) -> bool:
    """See `Bus.is_known_agent`."""
    if name == (await read_default_agent(log) or DEFAULT_AGENT) or name in await read_live_workers(log, None):
        return True
    return name in await log.agents() or name in await _fetching_groups(log)


async def read_unfetched_work(log: Log, limit: int) -> tuple[AgentWork, ...]:
    """See `Bus.unfetched_work`."""
    fetching = await _fetching_groups(log)
    names = [name for name, _ in Counter(await log.agents()).most_common() if name not in fetching]
    places: dict[AgentBucket, PlaceStatus] = {}
    for name in names[:limit]:
        places |= await _read_agent(log, DEFAULT_GROUP, name)
    if not places:
        return ()
    now, _ = await read_heartbeats(log.pool, log.keys, DEFAULT_GROUP)
    return tuple(work for work in await work_by_agent(log, places, now) if work.lag)


async def read_live_workers(log: Log, group: str | None) -> Counter[str]:
    """Return the number of live consumers of a group, or of all groups, that serve each agent. Raises Unavailable."""
    workers: Counter[str] = Counter()
    for name in sorted({DEFAULT_GROUP, *await all_group_names(log)}) if group is None else (group,):
        now, heartbeats = await read_heartbeats(log.pool, log.keys, name)
        workers.update(_flat(each.agents for each in heartbeats.values() if now - each.seen < each.period))
    return workers


async def _fetching_groups(log: Log) -> dict[str, set[str]]:
    """Return, by agent, the groups that have ever fetched its work."""
    found: dict[str, set[str]] = defaultdict(set)
    for parts in await all_parts(log):
        for agent, group in parts:
            found[agent].add(group)
    return dict(found)


async def _read_agent(log: Log, group: str, agent: str) -> dict[AgentBucket, PlaceStatus]:
    places = [AgentBucket(bucket, agent) for bucket in range(log.keys.buckets)]
    return await read_places(log.pool, log.keys, group, places, log.work, begun=False)


async def read_default_agent(log: Log) -> str | None:
    """Return the default agent that is stored for the namespace; None if there is none. Raises Unavailable."""
    stored = cast("bytes | None", await log.call("HGET", log.keys.config, "agent"))
    return None if stored is None else stored.decode()


async def store_default_agent(log: Log, name: str) -> None:
    """Store the default agent of the namespace. Raises Unavailable."""
    await log.call("HSET", log.keys.config, "agent", name)


def _flat(lists: Iterable[tuple[str, ...]]) -> Iterable[str]:
    return (name for names in lists for name in names)
