"""Open buses and their sessions, for tests of the contract."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lanebus import Bus, Session
from lanebus.groups import Consumer
from tests.support.servers.real import AnyServer


@asynccontextmanager
async def _opened(server: AnyServer) -> AsyncGenerator[Bus, None]:
    """Open a bus in a task of its own: the task that opens it must close it, and a fixture ends in another task."""
    opened: asyncio.Future[Bus] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        try:
            async with server.bus() as bus:
                opened.set_result(bus)
                await over.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
            raise

    task = asyncio.create_task(hold())
    yield await opened
    over.set()
    await task


@pytest.fixture
async def bus(server: AnyServer) -> AsyncGenerator[Bus, None]:
    """A bus on `server`."""
    async with _opened(server) as bus:
        yield bus


@pytest.fixture
async def other(server: AnyServer) -> AsyncGenerator[Bus, None]:
    """A second bus on `server`, as of another process."""
    async with _opened(server) as bus:
        yield bus


@pytest.fixture
async def session(bus: Bus) -> Session:
    """The session "s" of `bus`, empty."""
    return bus.session("s")


@pytest.fixture
async def consumer(bus: Bus) -> AsyncGenerator[Consumer, None]:
    """The consumer "c" of the group "g"."""
    async with bus.consumer("g", "c") as consumer:
        yield consumer
