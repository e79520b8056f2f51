"""Open buses and their sessions, for tests of the contract."""

from collections.abc import AsyncGenerator

import pytest

from lanebus.bus import Bus, Consumer, Session
from tests.support.held import held
from tests.support.servers.real import AnyServer


@pytest.fixture
async def bus(server: AnyServer) -> AsyncGenerator[Bus, None]:
    """A bus on `server`, or on the test's own server."""
    async with held(server.bus()) as bus:
        yield bus


@pytest.fixture
async def other(server: AnyServer) -> AsyncGenerator[Bus, None]:
    """A second bus on the same server, as of another process."""
    async with held(server.bus()) as bus:
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
