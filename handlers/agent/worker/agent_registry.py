"""The agents that a worker knows by name, and which of them runs a session."""

from collections.abc import Mapping
from typing import cast

from lanebus.bus.wire.keys import check_agent
from lanebus.handlers.agent.errors import DuplicateAgent
from lanebus.handlers.agent.run import Agent

__all__ = ("AgentRegistry", "agents_below", "name_of")


def agents_below(agent: Agent) -> Mapping[str, Agent]:
    """Return the sub-agents of an `AgentLoop` by name; empty for an agent that is a function."""
    return cast("Mapping[str, Agent]", getattr(agent, "agents", {}))


def name_of(agent: Agent, default: str) -> str:
    """Return the name of an agent: its attribute `name`, else `default`.

    Raises:
        InvalidName: the name does not match `[A-Za-z0-9_.-]{1,64}`.
    """
    name: object = getattr(agent, "name", None)
    return check_agent(name if isinstance(name, str) else default)


class AgentRegistry:
    """Finds the agent that runs a session, by the agent name of the session."""

    def __init__(self, own: Agent, named: Mapping[str, Agent], default: str) -> None:
        """
        Args:
            own: the worker's agent. Its sub-agents are known too.
            named: more agents, by name.
            default: the name of `own` if it has none.

        Raises:
            InvalidName: a name does not match `[A-Za-z0-9_.-]{1,64}`.
            DuplicateAgent: two agents have the same name.
        """
        self._own = own
        self._agents: dict[str, Agent] = {name_of(own, default): own}
        for name, agent in (*agents_below(own).items(), *named.items()):
            known = self._agents.setdefault(check_agent(name, "agents"), agent)
            if known is not agent and (known is own or name not in named):
                raise DuplicateAgent(name)
            self._agents[name] = agent

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all agents, the worker's own first."""
        return tuple(self._agents)

    def of(self, name: str) -> Agent:
        """Return the agent with this name. If there is none, return the worker's own agent."""
        return self._agents.get(name, self._own)
