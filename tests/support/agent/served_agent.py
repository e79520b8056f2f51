"""A server with the page's API, and a worker beside it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from lanebus import Bus
from lanebus.agent import Agent, Worker
from tests.support.agent.logs import until
from tests.support.page.serving import Served, serving, temporary_bus


@asynccontextmanager
async def served_agent(agent: Agent, *, name: str = "w1") -> AsyncGenerator[Served]:
    """Serve a bus whose sessions one worker answers."""
    async with temporary_bus() as bus, serving(bus) as served, Worker(bus, agent, name=name):
        await wait_for_worker(bus)
        yield served


async def wait_for_worker(bus: Bus) -> None:
    """Wait until the bus knows a worker. Clients that ask earlier get a notice that no worker serves the agent."""

    async def is_known() -> bool:
        return bool(await bus.live_workers())

    await until(is_known)
