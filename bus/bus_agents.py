"""Methods of `Bus` about agents: list them, count workers and waiting sessions, and set the default one."""

from collections.abc import Mapping
from typing import Protocol

from lanebus.bus.errors import require_count
from lanebus.bus.groups.status import (
    AgentStatus,
    AgentWork,
    is_known_agent,
    read_agents,
    read_default_agent,
    read_live_workers,
    read_unfetched_work,
    store_default_agent,
)
from lanebus.bus.log.log import Log
from lanebus.bus.wire.keys import DEFAULT_AGENT, check_agent, check_group


class HasLog(Protocol):
    """The type of `self` in functions that `Bus` has as methods."""

    default_agent: str
    log: Log


async def agents(self: HasLog, group: str | None = None) -> list[AgentStatus]:
    """Return the agents of this bus, sorted by name: those with sessions or workers, and the default agent.

    Args:
        group: the consumer group whose workers and waiting sessions are counted; None means all groups.

    Raises:
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    default = await read_default_agent(self.log) or DEFAULT_AGENT
    return await read_agents(self.log, None if group is None else check_group(group), default)


async def live_workers(self: HasLog, group: str | None = None) -> Mapping[str, int]:
    """Return how many live workers serve each agent, by the server's clock. Agents without a live worker are absent.

    The cost does not depend on the number of sessions.

    Args:
        group: the consumer group of the workers; None means all groups.

    Raises:
        InvalidName: `group` does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    return await read_live_workers(self.log, None if group is None else check_group(group))


async def is_known(self: HasLog, agent: str) -> bool:
    """Return whether an agent was ever heard of: it is the default one, a worker has served it, or a session belongs to
    it. Another name is probably misspelt, or its first worker has not started yet.

    Args:
        agent: name of the agent.

    Raises:
        Unavailable: the server cannot be reached.
    """
    return await is_known_agent(self.log, agent)


async def unfetched_work(self: HasLog, limit: int = 20) -> tuple[AgentWork, ...]:
    """Return the waiting sessions of agents that no worker has ever served, by agent.

    `group_status` does not count these sessions.

    Args:
        limit: maximum number of agents to look at. Agents with the most sessions come first.

    Raises:
        Unavailable: the server cannot be reached.
    """
    require_count("limit", limit, least=1)
    return await read_unfetched_work(self.log, limit)


async def set_default_agent(self: HasLog, agent: str) -> None:
    """Set the namespace's default agent: new sessions belong to it unless the caller names an agent.

    This bus uses the new default at once. Other open buses use it after they are opened again. Existing sessions keep
    their agents. In a new namespace, the default agent is `agent`.

    Args:
        agent: name of the agent.

    Raises:
        InvalidName: `agent` does not match `[A-Za-z0-9_.-]{1,64}`.
        Unavailable: the server cannot be reached.
    """
    await store_default_agent(self.log, check_agent(agent))
    self.default_agent = agent
