"""A server with the page's API, and a worker beside it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from lanebus.handlers.agent.run import Agent
from lanebus.handlers.agent.worker.worker import Worker
from tests.support.page.serving import Served, serving, temporary_bus

__all__ = ("served_agent",)


@asynccontextmanager
async def served_agent(agent: Agent, *, name: str = "w1") -> AsyncGenerator[Served]:
    """Serve a bus whose sessions one worker answers."""
    async with temporary_bus() as bus, serving(bus) as served, Worker(bus, agent, name=name):
        yield served
