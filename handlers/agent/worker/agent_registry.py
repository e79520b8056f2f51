"""The agents that a worker knows, and the choice of the agent for a session."""

import logging
from collections.abc import Mapping
from typing import cast

from lanebus.handlers.agent.run import Agent
from lanebus.handlers.projections.agent_status import Status

__all__ = ("AgentRegistry", "agent_name", "agents_below")

_log = logging.getLogger(__name__)


def agents_below(agent: Agent) -> Mapping[str, Agent]:
    """Return the sub-agents of a loop by name; empty for an agent that is a function."""
    return cast("Mapping[str, Agent]", getattr(agent, "agents", {}))


def agent_name(agent: Agent, status: Status) -> str:
    """Return the name under which an agent runs a session; "" for a function without a name."""
    return cast("str", getattr(agent, "name", "")) if status.link is None else status.link.agent


class AgentRegistry:
    """Finds the agent of a session: the sub-agent named in the session's link, else the worker's own agent."""

    def __init__(self, own: Agent, named: Mapping[str, Agent]) -> None:
        self._own, self._named = own, named
        self._unknown: set[str] = set()

    def of(self, status: Status) -> Agent | None:
        """Return the agent of a session; None if this worker does not know the agent. Each unknown name is logged
        once."""
        if status.link is None:
            return self._own
        name = status.link.agent
        agent = self._named.get(name)
        if agent is None and name not in self._unknown:
            self._unknown.add(name)
            _log.warning("sessions of the agent %r are skipped: this worker does not know it; pass it in agents=", name)
        return agent
