"""Checks of a worker's arguments when the worker is made, before it fetches anything."""

from collections.abc import Mapping
from typing import NamedTuple, cast

from lanebus.bus.bus import Bus
from lanebus.bus.errors import require_count, require_instance, require_seconds, require_text
from lanebus.bus.groups.retry_policy import RetryPolicy
from lanebus.handlers.agent.bounds import WorkerBounds
from lanebus.handlers.agent.set_up import check_runnable

__all__ = ("WorkerArguments",)


class WorkerArguments(NamedTuple):
    """The arguments of `Worker` that `check` checks. The other arguments are checked where they are used."""

    bus: object
    agent: object
    agents: object
    name: object
    concurrency: object
    drain_seconds: object
    retry: object
    bounds: object

    def check(self) -> None:
        """Raise InvalidArgument if an argument has a wrong type, or a number is too small."""
        require_instance("bus", self.bus, Bus, "pass the Bus that `Bus.open` yields")
        check_runnable("agent", self.agent)
        require_instance("agents", self.agents, Mapping, "pass a dict of agents by name", is_optional=True)
        for agent in cast("Mapping[object, object]", self.agents or {}).values():
            check_runnable("agents", agent)
        require_text("name", self.name, is_optional=True, is_filled=True)
        require_count("concurrency", self.concurrency, least=1)
        require_seconds("drain_seconds", self.drain_seconds)
        require_instance("retry", self.retry, RetryPolicy, "pass RetryPolicy(…)")
        require_instance("bounds", self.bounds, WorkerBounds, "pass WorkerBounds(…)")
