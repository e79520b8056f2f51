"""Work that grows with a session is done in turns: without one, a route asks the server a constant number of things."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from pydantic import JsonValue

from lanebus import Bus, UserMessage
from lanebus.access import AccessRequest, Decision
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.budget import Turns
from lanebus.handlers.serve.errors import ServerBusy
from lanebus.messages import TurnId
from tests.support.page.samples import begun
from tests.support.page.serving import TOKEN, Served, serving, temporary_bus

TURN = TurnId(loop_id="s.main.1", turn_index=0)
PATH = "/api/sessions/{session}"
GETS: Mapping[str, str] = {
    "/api/access": "",
    "/api/changes": "",
    "/api/events": "?sessions={session}&lanes=all",
    "/api/projections": "",
    "/api/sessions": "",
    "/api/waiting": "",
    "/chat/{session}/messages": "",
    "/chat/{session}/stream": "",
    PATH: "",
    f"{PATH}/call": "?id=c1",
    f"{PATH}/context": "",
    f"{PATH}/dead-letters": "",
    f"{PATH}/entries": "?since=1e10",
    f"{PATH}/entries/{{position}}/media/{{sha256}}": "",
    f"{PATH}/events": "?lanes=all",
    f"{PATH}/forks": "",
    f"{PATH}/projections/{{name}}": "?position=3",
    f"{PATH}/projections/{{name}}/events": "",
    f"{PATH}/status": "",
    f"{PATH}/timeline": "",
    f"{PATH}/turns": "",
    f"{PATH}/turns/{{turn}}/request": "",
    f"{PATH}/uploads/{{sha256}}": "",
    f"{PATH}/usage": "",
}
ABOUT: JsonValue = {"turnId": {"loopId": TURN.loop_id, "turnIndex": 0}, "toolCallId": "c1"}
POSTS: Mapping[str, dict[str, JsonValue]] = {
    "/agui/{agent}": {"threadId": "{session}", "runId": "r1", "messages": []},
    "/chat": {"id": "{session}", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}]},
    f"{PATH}/agent": {"agent": "main"},
    f"{PATH}/close": {},
    f"{PATH}/commands": {"command": "approve", "turnId": {"loopId": TURN.loop_id, "turnIndex": 0}, "toolCallId": "c1"},
    f"{PATH}/forks": {"position": 1},
    f"{PATH}/messages": {"text": "hi"},
    f"{PATH}/redrive": {},
    f"{PATH}/reopen": {},
    f"{PATH}/trim": {"before": 2, "force": True, "dryRun": True},
    f"{PATH}/uploads": {"sha256": "0" * 64, "size": 10, "type": "image/png"},
}
OTHERS = {"/", "/static/{path:path}", "/favicon.ico", "/api/openapi.json"}
"""routes that read no session"""
MANY = 40


def test_every_route_has_a_row() -> None:
    known = {("GET", path) for path in {*GETS, *OTHERS}} | {("POST", path) for path in POSTS}
    declared = {(each.method, each.path.replace(":int", "")) for each in endpoints()}
    assert {(method, path) for method, path in declared if method in {"GET", "POST"}} == known


async def fill(bus: Bus, name: str, number: int) -> None:
    """Give a session a number of entries, forks of forks, and dead letters."""
    session = bus.session(name)
    await session.publish(UserMessage.text("hi"), *begun(name, "c1", agent="main"))
    last = session
    for at in range(number):
        await session.publish(UserMessage.text("x" * 100))
        last = await last.fork(1, id=f"{name}-{at}")
        async with bus.consumer("workers", "w1") as consumer:
            for work in await consumer.fetch(1):
                await consumer.dead_letter(work, reason="broken")


async def allow(request: AccessRequest) -> Decision:
    """Decide as a hook, so that each session has to be asked for."""
    return Decision(True)


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Bus, Served]]:
    async with temporary_bus() as bus:
        await fill(bus, "small", 1)
        await fill(bus, "large", MANY)
        async with serving(bus, authorize=allow) as served:
            yield bus, served


async def asked(bus: Bus, client: httpx2.AsyncClient, session: str, method: str, path: str) -> int:
    """Return how many commands the server ran for a request that gets no turn. A stream is ended at its first bytes."""
    where = {"session": session, "name": "turns", "position": "1", "sha256": "0" * 64, "agent": "main"}
    address = path.format(**where, turn=f"{session}.main.1%230") + GETS.get(path, "").format(session=session)
    body = None if method == "GET" else _filled(POSTS[path], session)
    before = await commands(bus)
    with anyio.fail_after(60):
        async with client.stream(method, address, json=body) as reply:
            if not reply.headers.get("content-type", "").startswith("text/event-stream"):
                await reply.aread()
            else:
                await anext(reply.aiter_raw(), None)
    return await commands(bus) - before


def _filled(value: JsonValue, session: str) -> JsonValue:
    if isinstance(value, dict):
        return {key: _filled(each, session) for key, each in value.items()}
    return value.format(session=session) if isinstance(value, str) else value


async def commands(bus: Bus) -> int:
    (reply,) = await bus.log.pool.call_many([("INFO", "commandstats")])
    assert isinstance(reply, bytes)
    return sum(int(line.split(b"calls=")[1].split(b",")[0]) for line in reply.splitlines() if b"calls=" in line)


@pytest.mark.full
async def test_without_a_turn_no_route_asks_more_of_the_server_for_a_larger_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(self: Turns, owner: str, *, is_rested: bool) -> None:
        raise ServerBusy

    found: dict[str, tuple[int, int]] = {}
    async with (
        opened() as (bus, served),
        httpx2.AsyncClient(base_url=served.base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client,
    ):
        monkeypatch.setattr(Turns, "enter", refuse)
        for method, path in [("GET", path) for path in GETS] + [("POST", path) for path in POSTS]:
            small = min([await asked(bus, client, "small", method, path) for _ in range(3)])
            large, most = small + MANY, small + MANY // 4
            for _ in range(20):  # the server's own sweeps count too
                if large > most:
                    large = min(large, await asked(bus, client, "large", method, path))
            if large > most:
                found[f"{method} {path}"] = (small, large)
        monkeypatch.undo()
    assert found == {}
