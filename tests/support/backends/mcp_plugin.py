"""A pytest plugin for the MCP SDK's own tests: it puts the stores of lanebus in place of theirs.

pytest loads it by its bare name, because the package `tests` is theirs there. LANEBUS_URL and LANEBUS_NAMESPACE name
the server.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from importlib import import_module
from secrets import token_hex

import anyio
import anyio.abc
import pytest
from mcp.server import subscriptions
from mcp.server.subscriptions import ServerEvent
from mcp_types import JSONRPCMessage

from lanebus import Bus
from lanebus.mcp import McpEventStore, McpSubscriptionBus


class _Test:
    bus: Bus
    tasks: anyio.abc.TaskGroup


class SubstituteBus(McpSubscriptionBus):
    """Is entered when it is created, as the tests do not enter theirs."""

    def __init__(self) -> None:
        super().__init__(_Test.bus, token_hex(8))
        self._is_entered = anyio.Event()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # the one test without a loop publishes nothing
        _Test.tasks.start_soon(self._live)

    async def _live(self) -> None:
        async with self:
            self._is_entered.set()
            await anyio.sleep_forever()

    async def publish(self, event: ServerEvent) -> None:
        await self._is_entered.wait()
        await super().publish(event)


class SubstituteStore(McpEventStore):
    """Has what the tests use of theirs besides the interface: the number of events, and a wait for it."""

    def __init__(self) -> None:
        super().__init__(_Test.bus, token_hex(8))
        self._events: list[tuple[str, JSONRPCMessage | None]] = []
        self._changed = anyio.Condition()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        found = await super().store_event(stream_id, message)
        async with self._changed:
            self._events.append((stream_id, message))
            self._changed.notify_all()
        return found

    async def wait_until_stored(self, count: int) -> None:
        async with self._changed:
            while len(self._events) < count:
                await self._changed.wait()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
async def lanebus_server(anyio_backend: str) -> AsyncGenerator[None]:
    async with (
        Bus.open(os.environ["LANEBUS_URL"], namespace=os.environ["LANEBUS_NAMESPACE"]) as bus,
        anyio.create_task_group() as tasks,
    ):
        _Test.bus, _Test.tasks = bus, tasks
        yield
        tasks.cancel_scope.cancel()


def pytest_configure() -> None:
    """Before a test module imports them."""
    subscriptions.InMemorySubscriptionBus = SubstituteBus  # type: ignore[misc,assignment]


def pytest_collectstart() -> None:
    """The store is a module of the tests, which can be imported once their folder is on the path."""
    with suppress(ModuleNotFoundError):
        module = import_module("tests.interaction.transports._event_store")
        module.SequencedEventStore = SubstituteStore  # type: ignore[attr-defined]
