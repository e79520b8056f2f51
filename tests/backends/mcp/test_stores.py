"""Stores for MCP servers: events and change notices in any process, and the SDK's own tests."""

import os
import re
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import EventMessage
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCResponse, LoggingMessageNotificationParams
from starlette.types import Message, Receive, Scope, Send

from lanebus import Bus, ExtensionMessage
from lanebus.errors import NotEntered
from lanebus.handlers.integrations.bounds import BackendBounds
from lanebus.mcp import McpEventStore, McpStoreBounds, McpSubscriptionBus
from tests.support.backends.imported import import_session
from tests.support.backends.mcp_process import server_process
from tests.support.backends.sources import source_of
from tests.support.paths import ROOT
from tests.support.servers.real import AnyServer, RealServer, eventually

SHORT = McpStoreBounds(resume_seconds=0.2)


"""for tests of a stream without an end"""


def note(text: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"level": "info", "data": text})


def end(text: str = "done") -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text})


async def replayed(store: McpEventStore, after: str) -> list[tuple[str | None, JSONRPCMessage]]:
    found: list[tuple[str | None, JSONRPCMessage]] = []

    async def send(event: EventMessage) -> None:
        found.append((event.event_id, event.message))

    await store.replay_events_after(after, send)
    return found


@pytest.mark.cluster("the session of the events is on one of the nodes")
async def test_another_process_replays_a_stream_to_its_end(server: AnyServer) -> None:
    async with server.bus() as bus:
        store = McpEventStore(bus)
        first = await store.store_event("1", None)
        await store.store_event("2", note("of another stream"))
        last = [await store.store_event("1", message) for message in (note("a"), note("b"), end())]
    async with server.bus() as bus:
        other = McpEventStore(bus)
        expected = [*zip(last, (note("a"), note("b"), end()), strict=True)]
        assert await replayed(other, first) == expected
        assert await replayed(other, last[0]) == expected[1:]


async def test_a_killed_process_loses_no_event_whose_id_was_sent(shared_valkey: RealServer) -> None:
    code = f"""
import anyio
from lanebus import Bus
from lanebus.mcp import McpEventStore
from mcp_types import JSONRPCNotification

async def main():
    async with Bus.open({shared_valkey.url!r}) as bus:
        store = McpEventStore(bus)
        for number in range(10**9):
            message = JSONRPCNotification(jsonrpc="2.0", method="n", params={{"number": number}})
            print(await store.store_event("1", message), flush=True)

anyio.run(main)
"""
    async with await anyio.open_process([sys.executable, "-c", code], stderr=None, cwd=ROOT) as process:
        assert process.stdout is not None
        sent = b""
        with anyio.fail_after(120):
            while sent.count(b"\n") < 200:
                sent += await process.stdout.receive()
        process.kill()
        async for rest in process.stdout:
            sent += rest
    ids = sent.decode().splitlines(keepends=True)
    known = [each.strip() for each in ids if each.endswith("\n")]
    async with shared_valkey.bus() as bus:
        found = await replayed(McpEventStore(bus, bounds=SHORT), known[0])
        assert [each for each, _ in found][: len(known) - 1] == known[1:]
        numbers = [message.params for _, message in found if isinstance(message, JSONRPCNotification)]
        assert numbers == [{"number": number} for number in range(1, len(found) + 1)]


async def test_events_stored_during_a_replay_are_sent_once(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as one, shared_valkey.bus() as other:
        writer, reader = McpEventStore(one), McpEventStore(other)
        first = await writer.store_event("1", None)
        found, ids = list[str | None](), list[str]()
        is_reading = anyio.Event()

        async def send(event: EventMessage) -> None:
            found.append(event.event_id)
            is_reading.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader.replay_events_after, first, send)
            ids += [await writer.store_event("1", note("before"))]
            await is_reading.wait()
            ids += [await writer.store_event("1", note(str(number))) for number in range(50)]
            ids.append(await writer.store_event("1", end()))
        assert found == ids


async def test_a_thousand_streams_are_replayed_each_by_itself(bus: Bus) -> None:
    store = McpEventStore(bus)
    firsts = dict[int, str]()

    async def store_stream(number: int) -> None:
        firsts[number] = await store.store_event(str(number), None)
        await store.store_event(str(number), note(str(number)))
        await store.store_event(str(number), end(str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(1_000):
            tasks.start_soon(store_stream, number)
    for number in (0, 1, 500, 998, 999):
        assert [message for _, message in await replayed(store, firsts[number])] == [
            note(str(number)),
            end(str(number)),
        ]


async def test_an_unknown_trimmed_or_wrong_id_replays_nothing(bus: Bus) -> None:
    store = McpEventStore(bus, bounds=McpStoreBounds(kept_entries=5, resume_seconds=0.2))
    ids = [await store.store_event("1", note(str(number))) for number in range(23)]
    for wrong in (ids[0], ids[14], "0", "24", "9" * 30, "-1", "x", "", "１"):
        assert await replayed(store, wrong) == []
    assert [each for each, _ in await replayed(store, ids[15])] == ids[16:]


async def test_a_large_message_goes_to_the_media_store_and_comes_back(bus: Bus) -> None:
    large = end("é" * 1_500_000)  # more than an entry may hold
    store = McpEventStore(bus)
    first = await store.store_event("1", None)
    await store.store_event("1", large)
    assert [message for _, message in await replayed(store, first)] == [large]
    tiny = McpEventStore(bus, "tiny", bounds=McpStoreBounds(values=BackendBounds(inline_bytes=1)))
    first = await tiny.store_event("1", None)
    await tiny.store_event("1", end())
    assert [message for _, message in await replayed(tiny, first)] == [end()]


async def test_a_client_gets_no_event_of_another_session_with_the_same_stream(bus: Bus) -> None:
    stored, found = dict[str, str](), dict[str, list[str | None]]()

    async def act(store: McpEventStore, scope: Scope, receive: Receive, send: Send) -> None:
        session = dict(scope["headers"])[b"mcp-session-id"].decode()
        if scope["path"] == "/store":
            stored[session] = await store.store_event("1", None)
            await store.store_event("1", end(session))
        else:
            asked = scope["path"].removeprefix("/")
            found[f"{session} {asked}"] = [each for each, _ in await replayed(store, asked)]

    async def unused() -> Message:
        raise AssertionError

    async def ignored(_: Message) -> None: ...

    store = McpEventStore(bus)
    app = store.separated(partial(act, store))

    async def request(session: str, path: str) -> None:
        scope = {"type": "http", "path": path, "headers": [(b"mcp-session-id", session.encode())]}
        await app(scope, unused, ignored)

    for session in ("a", "b"):
        await request(session, "/store")
    for session in ("a", "b"):
        for of in ("a", "b"):
            await request(session, f"/{stored[of]}")
    assert found == {"a 1": ["2"], "a 3": [], "b 1": [], "b 3": ["4"]}


async def test_clients_of_one_server_resume_side_by_side(shared_valkey: RealServer) -> None:
    """Both number their streams alike. The server ends each connection after the first notification."""
    said: dict[str, list[object]] = {"ada": [], "bob": []}

    async def use(url: str, name: str) -> None:
        async def heard(params: LoggingMessageNotificationParams) -> None:
            said[name].append(params.data)

        async with Client(streamable_http_client(url), mode="legacy", logging_callback=heard) as client:
            result = await client.call_tool("count", {"name": name, "to": 20})
            assert result.structured_content == {"result": f"{name} counted"}

    async with server_process(shared_valkey.url) as server:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for name in said:
                    tasks.start_soon(use, server.url, name)
    assert said == {name: [f"{name} {number}" for number in range(1, 21)] for name in said}


async def test_an_imported_event_is_neither_replayed_nor_the_end_of_a_stream(bus: Bus) -> None:
    store = McpEventStore(bus)
    first = await store.store_event("1", None)
    await store.store_event("1", note("a"))
    await import_session(bus, "mcp-events", "theirs")
    theirs = McpEventStore(bus, "theirs")
    assert await replayed(theirs, first) == []
    await McpEventStore(bus, "forged").store_event("1", end("forged"))
    await import_session(bus, "forged", "mcp-events")
    await store.store_event("1", end())
    assert [message for _, message in await replayed(store, first)] == [note("a"), end()]


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


async def test_an_imported_notice_reaches_no_listener_and_a_bus_that_was_not_entered_publishes_none(
    shared_valkey: RealServer,
) -> None:
    async with shared_valkey.bus() as bus, McpSubscriptionBus(bus) as subscriptions:
        seen: list[ServerEvent] = []
        subscriptions.subscribe(seen.append)
        forged = ExtensionMessage.of("mcp.changed", {"resource": "http://169.254.169.254/"})
        await bus.session("mcp-changes").publish(forged, imported=True)
        await subscriptions.publish(ToolsListChanged())
        assert seen == [ToolsListChanged()]
        with pytest.raises(NotEntered):
            await McpSubscriptionBus(bus).publish(ToolsListChanged())


REFEREES = (Path(__file__).parent / "referee.txt").read_text().split()


def test_the_sdks_own_tests_pass_with_our_stores(shared_valkey: RealServer) -> None:
    namespace = "referee"
    environment = {
        **os.environ,
        "LANEBUS_URL": shared_valkey.url,
        "LANEBUS_NAMESPACE": namespace,
        "PYTHONPATH": str(ROOT / "tests" / "support" / "backends"),
    }
    # Their conftest needs packages that record spans and find blocking calls; the plugin has its fixture of the loop.
    # Their options load a plugin for examples.
    plugins = ("anyio", "no:asyncio", "no:lanebus", "no:valkey", "mcp_plugin", "no:cacheprovider")
    options = ["--noconftest", "-o", "addopts=", *(word for name in plugins for word in ("-p", name))]
    command = [sys.executable, "-m", "pytest", *options, *REFEREES]
    run = subprocess.run(
        command, cwd=source_of("mcp"), env=environment, capture_output=True, text=True, check=False, timeout=280
    )
    kept = ROOT / "build" / "backends" / "mcp.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(run.stdout + run.stderr)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr
    assert re.search(r"= 22 passed in [^,]*=$", run.stdout.strip()), run.stdout[-400:]

    async def written() -> int:
        async with Bus.open(shared_valkey.url, namespace=namespace) as bus:
            return len(await bus.sessions())

    assert anyio.run(written) >= 18  # nearly every test wrote to a store of its own
