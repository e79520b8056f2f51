"""Read-only commands and page routes change nothing on the server."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from starlette.routing import Route

from lanebus import AssistantMessage, Bus, Usage, UserMessage
from lanebus.bus.messages import TurnEnded, TurnId
from lanebus.handlers.cli.group import COMMANDS
from lanebus.handlers.projections import USAGE
from lanebus.projections import project
from tests.support.cli.command_line import CommandLine
from tests.support.page.serving import TOKEN
from tests.support.serve import BEARER, create_app, local_hosts, visitor
from tests.support.servers.real import RealServer
from tests.support.servers.resp import Reply

LOOKING = (
    *("sessions", "agents", "show s", "tail s", "tail s -n 1", "turns s", "usage s", "usage s --tree"),
    *("context s --model m", "top --once", "export s", "verify s", "verify --all", "replay s", "replay s --until 2"),
    *("dead list", "groups status", "projections list s", "trim s --before 3 --dry-run"),
)
"""Commands that only read."""

S = "/api/sessions/s"
ROUTES = (
    *("/", "/static/styles/base.css", "/favicon.ico", "/api/access", "/api/openapi.json", "/api/sessions"),
    *("/api/waiting", "/api/projections", "/chat/s/messages", S, f"{S}/entries", f"{S}/status", f"{S}/call"),
    *(f"{S}/turns", f"{S}/usage", f"{S}/timeline", f"{S}/context?model=m", f"{S}/forks", f"{S}/dead-letters"),
    *(f"{S}/turns/main.1%230/request", f"{S}/projections/turns", f"{S}/uploads/{'0' * 64}"),
    f"{S}/entries/1/media/{'0' * 64}",
)
STREAMS = {
    "/api/sessions/{session}/events",
    "/api/events",
    "/api/changes",
    "/chat/{session}/stream",
    "/api/sessions/{session}/projections/{name}/events",
}
"""routes with tests of their own"""


def answer(tokens: int) -> AssistantMessage:
    return AssistantMessage(usage=Usage(input=tokens, total_tokens=tokens), stop_reason="stop")


@asynccontextmanager
async def looked_at(server: RealServer) -> AsyncGenerator[Bus]:
    """A session `s` with a stored state that is older than its end."""
    async with server.bus() as bus:
        session = bus.session("s")
        await session.publish(UserMessage.text("a"), answer(1))
        await project(session, USAGE)
        ended = TurnEnded(turn_id=TurnId(loop_id="s.main.1", turn_index=0), stop_reason="stop", usage=Usage(input=2))
        await session.publish(UserMessage.text("b"), answer(2), ended.as_extension())
        yield bus


def stored(server: RealServer) -> Mapping[str, Reply]:
    """Every key of the server, and the digest of all that it holds."""
    digest = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))"
    with server.talk() as say:
        names = say("KEYS", "*")
        assert isinstance(names, list)
        return {str(name): say("EVAL", digest, "1", str(name)) for name in names}


async def test_every_read_only_command_and_route_is_tested(shared_valkey: RealServer) -> None:
    assert {*COMMANDS["Read"]} <= {command.partition(" ")[0] for command in LOOKING}
    async with shared_valkey.bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420))
    routes = [route for route in app.routes if isinstance(route, Route) and "GET" in (route.methods or ())]
    reached = {route.path for route in routes for path in ROUTES if route.path_regex.match(path.partition("?")[0])}
    assert {route.path for route in routes} - reached == STREAMS


@pytest.mark.full
@pytest.mark.parametrize("command", LOOKING)
async def test_a_read_only_command_changes_no_key(
    shared_valkey: RealServer, lanebus: CommandLine, command: str, tmp_path: Path
) -> None:
    async with looked_at(shared_valkey):
        before = stored(shared_valkey)
        words = [*command.split(), "--url", shared_valkey.url, "--archive", str(tmp_path)]
        done = await anyio.to_thread.run_sync(lambda: lanebus(*words))
        assert done.code == 0, done
        assert stored(shared_valkey) == before


async def test_a_read_only_route_changes_no_key(shared_valkey: RealServer) -> None:
    async with looked_at(shared_valkey) as bus:
        client = visitor(create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420)), **BEARER)
        before = stored(shared_valkey)
        for route in ROUTES * 2:
            # The session has no call, no media, no upload and no request.
            is_missing = any(each in route for each in ("/call", "/media/", "/uploads/"))
            expected = 404 if is_missing else 400 if "/request" in route else 200
            assert (await client.get(route)).status_code == expected
            assert stored(shared_valkey) == before, route


async def test_following_on_the_page_changes_no_key(shared_valkey: RealServer) -> None:
    async with looked_at(shared_valkey) as bus:
        before = stored(shared_valkey)
        async for frame in bus.session("s").subscribe(live=True):
            if frame.cursor.position == 5:
                break
        assert stored(shared_valkey) == before
