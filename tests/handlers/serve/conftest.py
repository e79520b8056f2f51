"""Fixtures of the tests of `serve`."""

from collections.abc import AsyncGenerator

import pytest

from lanebus import Bus
from tests.support.agent.agents import fresh_bus
from tests.support.held import held
from tests.support.page.serving import client_of, serving
from tests.support.serve import Client


@pytest.fixture
async def bus() -> AsyncGenerator[Bus]:
    """A bus of this test alone, on the Valkey that tests share."""
    async with held(fresh_bus()) as bus:
        yield bus


@pytest.fixture
async def client(bus: Bus) -> AsyncGenerator[Client]:
    """A client, with the token, of a page that serves `bus`."""
    async with held(serving(bus)) as served, client_of(served) as client:
        yield client
