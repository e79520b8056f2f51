"""Fixtures of these tests: a bus on each kind of server."""

from collections.abc import AsyncGenerator

import pytest

from lanebus import Bus
from tests.support.agent.agents import session
from tests.support.held import held
from tests.support.servers.real import AnyServer

__all__ = ("session",)


@pytest.fixture
async def bus(server: AnyServer) -> AsyncGenerator[Bus]:
    """A bus on a shared server."""
    async with held(server.bus()) as bus:
        yield bus
