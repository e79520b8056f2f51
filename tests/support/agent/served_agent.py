"""A server with the page's API, and a worker beside it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx2

from lanebus import AssistantMessage, Bus, TextBlock, Usage
from lanebus.agent import Agent, Piece, Worker
from tests.support.agent.agents import Pause, Step
from tests.support.agent.logs import until
from tests.support.page.serving import Served, client_of, serving, temporary_bus


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


@asynccontextmanager
async def ending_server(agent: Agent) -> AsyncGenerator[tuple[httpx2.AsyncClient, anyio.Event]]:
    """Serve a bus with a worker. Yield a client, and an event that ends the server when it is set."""
    ending = anyio.Event()
    async with (
        temporary_bus() as bus,
        Worker(bus, agent, name="w1", drain_seconds=0.05),
        anyio.create_task_group() as tasks,
    ):

        async def serve(*, task_status: anyio.abc.TaskStatus[Served]) -> None:
            async with serving(bus) as served:
                task_status.started(served)
                await ending.wait()

        served: Served = await tasks.start(serve)
        async with client_of(served) as client:
            yield client, ending


def paused_answer(pause: Pause, text: str) -> list[Step]:
    """Return an answer that stops after half of its text."""
    half = len(text) // 2
    whole = AssistantMessage(content=(TextBlock(text=text),), usage=Usage(input=10, output=2, total_tokens=12))
    return [Piece("text", text[:half]), pause, Piece("text", text[half:]), whole]
