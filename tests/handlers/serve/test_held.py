"""What a server holds for its clients, with tiny bounds: one budget for all routes, with a part for each principal."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import cast

import anyio
import httpx2
import pytest
from anyio.abc import ByteStream
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from lanebus import Bus, ExtensionMessage, ImageBlock, MediaRef, UserMessage
from lanebus.access import AccessBounds
from lanebus.handlers.context import Breather
from lanebus.handlers.serve import HostedApp, Principal
from lanebus.handlers.serve.api.endpoint import ApiContext
from tests.support.agent.agents import fresh_bus
from tests.support.page.serving import Served, serving
from tests.support.serve import (
    Client,
    HttpBounds,
    McpServerBounds,
    UiBounds,
    client_at,
    connected,
    error_of,
    read_to_end,
)
from tests.support.servers.real import eventually

TINY = UiBounds(
    memory_bytes=60_000,
    principal_bytes=40_000,
    small_bytes=100,
    read_bytes=10_000,
    run_bytes=4_000,
    piece_bytes=500,
    patience_seconds=0.05,
    http=HttpBounds(kernel_bytes=4_096, buffered_bytes=1_000, received_bytes=1_000),
)
HELD = 60_000


class Seen:
    """Gives a test the memory and the turns of the server."""

    path = "/seen"
    api: ApiContext

    @asynccontextmanager
    async def run(self, page: Starlette) -> AsyncGenerator[None]:
        self.api = cast("ApiContext", page.state.api)
        yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("no test asks it")


@dataclass
class Watched:
    served: Served
    api: ApiContext

    def client(self, name: str) -> Client:
        return client_at(self.served.base, None, **{"X-User": name})

    @asynccontextmanager
    async def stalled(self, request: str, body: bytes = b"", *, name: str = "mallory") -> AsyncGenerator[ByteStream]:
        """Send a request, or a part of it, and read nothing until the test does."""
        first, _, headers = request.partition("\r\n")
        head = f"{first} HTTP/1.1\r\nHost: 127.0.0.1:{self.served.port}\r\nX-User: {name}\r\n{headers}\r\n\r\n"
        async with connected(self.client(name), head.encode() + body) as stream:
            yield stream


@asynccontextmanager
async def watched(bus: Bus, bounds: UiBounds = TINY, *hosted: HostedApp) -> AsyncGenerator[Watched]:
    """Serve a bus to principals that a header names."""
    seen = Seen()

    async def identify(headers: Mapping[str, str], peer: str) -> Principal | None:
        return Principal(name=headers["x-user"], actions=("*",)) if "x-user" in headers else None

    async with serving(bus, bounds=bounds, identify=identify, hosted=[seen, *hosted]) as served:
        yield Watched(served, seen.api)


def post(path: str, length: int) -> str:
    return f"POST {path}\r\nContent-Type: application/json\r\nContent-Length: {length}"


async def test_bodies_that_do_not_come_hold_at_most_a_part_and_other_principals_are_served() -> None:
    async with fresh_bus() as bus, watched(bus) as server, server.client("bob") as bob:
        path, budget = "/api/sessions/s/messages", server.api.bodies
        async with (
            server.stalled(post(path, 6_000), b"{"),
            server.stalled(post(path, 6_000), b"{"),
            server.stalled(post(path, 6_000), b"{") as third,
        ):
            await eventually(lambda: budget.held == 12_000)
            reply = await bob.post(path, json={"text": "x" * 10_000})
            assert reply.status_code == 201
            # The third waits for mallory's own part: the longest of her silent clients is refused for it.
            await eventually(lambda: budget.held == 12_000)
            with suppress(anyio.BrokenResourceError):
                await third.send(b" " * 5_998 + b"}")
            assert (await read_to_end(third)).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 "))
        await eventually(lambda: budget.held == 0)


async def test_a_body_that_stops_is_refused_with_408_and_its_memory_given_back() -> None:
    async with fresh_bus() as bus, watched(bus, replace(TINY, body_seconds=0.2)) as server:
        async with server.stalled(post("/api/sessions/s/messages", 5_000), b"{") as stream:
            assert (await read_to_end(stream)).startswith(b"HTTP/1.1 408 ")
        await eventually(lambda: server.api.bodies.held == 0)


async def test_a_request_without_memory_in_time_gets_503_with_the_time_to_come_back() -> None:
    async with fresh_bus() as bus, watched(bus, replace(TINY, wait_seconds=0.05)) as server:
        async with server.client("bob") as bob, server.api.bodies.share(lambda: None, owner="others") as share:
            await share.take(HELD)
            reply = await bob.post("/api/sessions/s/messages", json={"text": "x" * 1_000})
        assert error_of(reply) == (503, "server_busy")
        assert int(reply.headers["Retry-After"]) > 0
        assert (await bus.session("s").head()).position == 0


def agui(count: int, text: str = "hi") -> JsonValue:
    messages: list[JsonValue] = [{"id": f"m{at}", "role": "user", "content": text} for at in range(count)]
    return {"threadId": "s", "runId": "r", "messages": messages}


def chat(text: str) -> JsonValue:
    message: JsonValue = {"id": text[:9], "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "s", "messages": [message], "trigger": "submit-message"}


UNREAD = {
    "entries": "GET /api/sessions/s/entries",
    "events": "GET /api/sessions/s/events?lanes=all",
    "merged": "GET /api/events?sessions=s,t&lanes=all",
    "context": "GET /api/sessions/s/context",
    "sessions": "GET /api/sessions",
    "media": "GET /api/sessions/s/entries/{media}",
    "openapi": "GET /api/openapi.json",
    "script": "GET /static/app/main.js",
    "page": "GET /",
    "agui": post("/agui/agent", 0),
    "chat": post("/chat", 0),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", UNREAD)
async def test_clients_that_read_nothing_hold_at_most_the_budget_and_nothing_when_they_are_gone(kind: str) -> None:
    size = 200_000 if kind == "media" else HELD
    bounds = replace(TINY, memory_bytes=size * 3, principal_bytes=size * 2) if kind == "media" else TINY
    async with fresh_bus() as bus, watched(bus, bounds) as server, server.client("bob") as bob:
        session = bus.session("s", agent="agent")
        await session.publish(*[UserMessage.text(f"{number} {'x' * 900}") for number in range(60)], wake=False)
        await bus.session("t").publish(ExtensionMessage.of("big", "y" * 9_000))
        request, body = UNREAD[kind], b""
        if kind == "media":
            picture = b"\x89PNG\r\n\x1a\n" + b"z" * size
            image = ImageBlock(media=MediaRef.from_bytes(picture))
            receipt = await session.publish(UserMessage(content=(image,)), wake=False)
            request = request.format(media=f"{receipt.position}/media/{sha256(picture).hexdigest()}")
        if kind in {"agui", "chat"}:
            body = json.dumps(agui(1) if kind == "agui" else chat("hi")).encode()
            request = post(request.split()[1], len(body))
        budget, most = server.api.budget, 0
        async with anyio.create_task_group() as tasks:
            for number in range(8):

                async def stall(number: int = number) -> None:
                    async with server.stalled(request, body, name=f"mallory-{number % 2}"):
                        await anyio.sleep_forever()

                tasks.start_soon(stall)
            for _ in range(20):  # bob is served each time
                reply = await bob.get("/api/sessions/t/entries")
                assert reply.status_code == 200
                most = max(most, budget.held)
            assert most <= bounds.memory_bytes + 8 * 2_000, "a read may have one entry more than it holds memory for"
            tasks.cancel_scope.cancel()
        await eventually(lambda: budget.held == 0)


async def test_answers_of_mcp_tools_are_held_in_the_budget_and_given_back() -> None:
    from lanebus.handlers.serve import McpHosted

    bounds = replace(TINY, wait_seconds=0.2)
    hosted = McpHosted(bounds=McpServerBounds(small_bytes=5_000, answer_bytes=20_000, calls=2))
    async with fresh_bus() as bus, watched(bus, bounds, hosted) as server, server.client("mallory") as client:
        session, budget = bus.session("s"), server.api.budget
        await session.publish(*[UserMessage.text("a" * 1_000) for _ in range(30)], wake=False)

        async def ask() -> dict[str, JsonValue]:
            call: JsonValue = {"name": "read_entries", "arguments": {"session": "s", "limit": 30}}
            asked: JsonValue = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            reply = await client.post("/mcp", json=asked, headers={"Accept": "application/json, text/event-stream"})
            if reply.status_code == 503:
                assert "Retry-After" in reply.headers
                return {"isError": True}
            return cast("dict[str, JsonValue]", reply.json()["result"])

        assert not (await ask())["isError"]
        async with budget.share(lambda: None, owner="mallory") as share:
            await share.take(bounds.principal_bytes - 10)
            assert (await ask())["isError"], "a large answer waits for mallory's own part, and not for ever"
        assert not (await ask())["isError"]
        await eventually(lambda: budget.held == 0)


async def test_one_principal_folds_for_long_and_the_status_of_another_is_answered_meanwhile() -> None:
    async with fresh_bus() as bus, watched(bus) as server, server.client("bob") as bob:
        await bus.session("s").publish(UserMessage.text("hi"), wake=False)
        over, begun = anyio.Event(), anyio.Event()

        async def long_fold() -> None:
            begun.set()
            while not over.is_set():
                await Breather().pause()

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(server.api.folded, "mallory", long_fold)
            await begun.wait()
            for path in ("status", "usage", "turns", "timeline", "entries"):
                assert (await bob.get(f"/api/sessions/s/{path}")).status_code == 200, path
            assert (await bob.get("/api/sessions")).status_code == 200
            assert (await bob.get("/api/access")).status_code == 200
            over.set()


async def test_a_principal_with_too_many_waiting_requests_gets_429() -> None:
    replies = list[httpx2.Response]()
    async with (
        fresh_bus() as bus,
        watched(bus, replace(TINY, queued=1)) as server,
        server.client("bob") as bob,
        server.api.folds.turn("bob"),
        anyio.create_task_group() as tasks,
    ):

        async def ask() -> None:
            replies.append(await bob.get("/api/sessions/s/status"))

        for _ in range(2):
            tasks.start_soon(ask)
        await eventually(lambda: bool(replies))
        tasks.cancel_scope.cancel()
    assert replies[0].status_code == 429
    assert "Retry-After" in replies[0].headers


LARGE = "x" * 800


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agui/agent", agui(20)),
        ("/agui/agent", agui(1, LARGE)),
        ("/chat", chat(LARGE)),
        ("/api/sessions/s/messages", {"text": LARGE}),
        ("/api/sessions/s/messages", {"text": LARGE, "followUp": True}),
        ("/api/sessions/s/commands", {"command": "steer", "text": LARGE}),
        ("/api/sessions/s/commands", {"command": "abort", "reason": LARGE}),
    ],
)
async def test_what_a_request_appends_counts_in_the_limit_of_its_principal(path: str, body: JsonValue) -> None:
    limits = AccessBounds(burst=8, requests_per_second=0.000_1, append_bytes=100)
    async with fresh_bus() as bus, watched(bus, UiBounds(access=limits)) as server:
        await bus.session("s", agent="agent").publish(UserMessage.text("first"), wake=False)
        async with server.client("mallory") as client:
            reply = await client.post(path, json=body)
            assert error_of(reply) == (413, "too_much_at_once")
        async with server.client("bob") as client:
            assert (await client.post("/api/sessions/s/messages", json={"text": "y" * 450})).status_code == 201
            reply = await client.post("/api/sessions/s/messages", json={"text": "z" * 450})
            assert error_of(reply) == (429, "too_many_requests")
            assert int(reply.headers["Retry-After"]) > 0
        assert (await bus.session("s").head()).position == 2
