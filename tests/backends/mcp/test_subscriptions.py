"""Change notices that reach the subscribers of all processes."""

from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest
from mcp import Client
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)

from lanebus import ExtensionMessage
from lanebus.errors import NotEntered
from lanebus.mcp import McpStoreBounds, McpSubscriptionBus
from tests.support.backends.mcp_process import server_process
from tests.support.servers.real import AnyServer, RealServer, eventually

__all__ = ()

EVENTS: tuple[ServerEvent, ...] = (
    ToolsListChanged(),
    PromptsListChanged(),
    ResourcesListChanged(),
    ResourceUpdated(uri="file:///é"),
)


async def test_an_event_of_one_server_process_reaches_the_clients_of_the_other(shared_valkey: RealServer) -> None:
    async with server_process(shared_valkey.url) as one, server_process(shared_valkey.url) as other:
        with anyio.fail_after(120):
            async with (
                Client(one.url) as here,
                Client(other.url) as there,
                there.listen(resource_subscriptions=["docs://a"]) as events,
            ):
                await here.call_tool("change", {"uri": "docs://b"})
                await here.call_tool("change", {"uri": "docs://a"})
                assert await anext(aiter(events)) == ResourceUpdated(uri="docs://a")


@pytest.mark.cluster("the session of the events is on one of the nodes")
async def test_all_processes_deliver_all_events_in_one_order(server: AnyServer) -> None:
    async with AsyncExitStack() as stack:
        seen = list[list[ServerEvent]]()
        buses = list[SubscriptionBus]()
        for _ in range(3):
            own = list[ServerEvent]()
            found = await stack.enter_async_context(McpSubscriptionBus(await stack.enter_async_context(server.bus())))
            found.subscribe(own.append)
            seen.append(own)
            buses.append(found)
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(buses[number % 3].publish, ResourceUpdated(uri=f"docs://{number}"))
        for each, bus in zip(EVENTS, buses * 2, strict=False):
            await bus.publish(each)
            assert each in seen[buses.index(bus)]  # the publisher's own listeners have it when `publish` returns
        await eventually(lambda: all(len(each) == 64 for each in seen))
        assert seen[0] == seen[1] == seen[2]


async def test_a_thousand_subscribers_get_every_event_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus, McpSubscriptionBus(bus) as subscriptions:
        counts = [0] * 1_000

        def count(number: int, _: ServerEvent) -> None:
            counts[number] += 1

        for number in range(1_000):
            subscriptions.subscribe(partial(count, number))
        for event in EVENTS:
            await subscriptions.publish(event)
        assert {*counts} == {len(EVENTS)}


async def test_events_published_while_the_server_is_down_for_others_are_delivered_after(valkey: RealServer) -> None:
    seen = list[ServerEvent]()
    async with valkey.bus() as bus, McpSubscriptionBus(bus) as subscriptions:
        subscriptions.subscribe(seen.append)
        await subscriptions.publish(EVENTS[0])
        valkey.kill()
        valkey.start()
        async with valkey.bus() as another, McpSubscriptionBus(another) as publisher:
            await publisher.publish(EVENTS[1])
        await eventually(lambda: seen == [*EVENTS[:2]])


async def test_the_log_keeps_at_most_twice_the_bound(shared_valkey: RealServer) -> None:
    bounds = McpStoreBounds(kept_entries=5)
    async with shared_valkey.bus() as bus, McpSubscriptionBus(bus, bounds=bounds) as subscriptions:
        for number in range(23):
            await subscriptions.publish(ResourceUpdated(uri=str(number)))
        head = await bus.session("mcp-changes").head()
        assert (head.position, head.first_kept) == (23, 16)


async def test_after_a_log_that_lost_its_end_the_lists_count_as_changed(valkey: RealServer) -> None:
    seen = list[ServerEvent]()
    async with valkey.bus() as bus, McpSubscriptionBus(bus) as subscriptions:
        subscriptions.subscribe(seen.append)
        copy = {path: path.read_bytes() for path in valkey.directory.glob("appendonlydir/*")}
        await subscriptions.publish(EVENTS[3])
        valkey.kill()
        for path, content in copy.items():
            path.write_bytes(content)
        valkey.start()
        async with valkey.bus() as another:  # the first entry of a new incarnation
            await another.session("mcp-changes").publish(ExtensionMessage.of("note"))
        await eventually(lambda: seen == [EVENTS[3], *EVENTS[:3]])
        await subscriptions.publish(EVENTS[0])
        await eventually(lambda: seen[4:] == [EVENTS[0]])


async def test_a_bus_that_was_not_entered_refuses_to_publish(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus:
        with pytest.raises(NotEntered):
            await McpSubscriptionBus(bus).publish(ToolsListChanged())


async def test_an_imported_notice_reaches_no_listener(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus, McpSubscriptionBus(bus) as subscriptions:
        seen: list[ServerEvent] = []
        subscriptions.subscribe(seen.append)
        forged = ExtensionMessage.of("mcp.changed", {"resource": "http://169.254.169.254/"})
        await bus.session("mcp-changes").publish(forged, imported=True)
        await subscriptions.publish(ToolsListChanged())
        assert seen == [ToolsListChanged()]
