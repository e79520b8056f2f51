"""The application below a base path, whether a proxy removes the path or not."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.errors import InvalidBasePath
from lanebus.handlers.serve.guard import local_hosts, parse_base_path
from lanebus.handlers.serve.server import create_app
from tests.support.page.serving import TOKEN, serving
from tests.support.serve import Client
from tests.support.servers.real import RealServer

__all__ = ()

HOST = "127.0.0.1:8420"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def visitor(server: RealServer, base_path: str = "/lanebus", mounted: str = "") -> AsyncGenerator[Client]:
    """Yield a client of an application, which may be a part of another one."""
    async with server.bus() as bus:
        app = create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420), base_path=base_path)
        outer = Starlette(routes=[Mount(mounted, app)]) if mounted else app
        transport = httpx2.ASGITransport(app=outer)
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=BEARER) as client:
            yield client


@pytest.mark.parametrize(
    ("text", "path"),
    [("", ""), ("/", ""), ("/lanebus", "/lanebus"), ("/lanebus/", "/lanebus"), ("/a/b-c.d~e_f", "/a/b-c.d~e_f")],
)
def test_a_base_path_has_no_slash_at_its_end(text: str, path: str) -> None:
    assert parse_base_path(text, [each.path for each in endpoints()]) == path


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *((text, "such as /lanebus") for text in ("lanebus", "/a//b", "/a/../b", "/.", "/a b", "/a?b", "/ä", "/a%20b")),
        *((text, "such as /lanebus") for text in ("//evil.example", "https://a.example/b", "/a\n", '/"><script>')),
        *((text, "choose another one") for text in ("/api", "/api/sessions", "/static", "/chat", "/agui", "/agui/x")),
        *((text, "choose another one") for text in ("/chat/s1/stream", "/api/sessions/s1", "/favicon.ico")),
    ],
)
def test_a_wrong_base_path_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InvalidBasePath, match=remedy) as caught:
        parse_base_path(text, [each.path for each in endpoints()])
    assert caught.value.path == text


@pytest.mark.parametrize("prefix", ["/lanebus", ""])
async def test_every_file_and_the_api_are_found_with_the_path_and_without_it(
    shared_valkey: RealServer, prefix: str
) -> None:
    async with visitor(shared_valkey) as client:
        index = await client.get(f"{prefix}/")
        assert (index.status_code, "/lanebus/static/app/main.js" in index.text) == (200, True)
        assert '"/static/' not in index.text
        del client.headers["Authorization"]
        assert (await client.get(f"{prefix}/static/app/main.js")).status_code == 200
        document = await client.get(f"{prefix}/api/openapi.json")
        assert document.json()["servers"] == [{"url": "/lanebus"}]
        assert (await client.get(f"{prefix}/api/sessions")).status_code == 401
        assert (await client.get(f"{prefix}/api/sessions", headers=BEARER)).status_code == 200
        assert (await client.get(f"{prefix}/chat/s1/stream", headers=BEARER)).status_code == 204


async def test_the_page_works_without_a_slash_at_the_end_of_the_base_path(shared_valkey: RealServer) -> None:
    async with visitor(shared_valkey) as client:
        reply = await client.get("/lanebus")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.parametrize(
    "path", ["/other/api/sessions", "/lanebusx/api/sessions", "/LANEBUS/api/sessions", "/lanebus/lanebus/api/sessions"]
)
async def test_what_is_outside_of_the_base_path_is_not_found(shared_valkey: RealServer, path: str) -> None:
    async with visitor(shared_valkey) as client:
        assert (await client.get(path)).status_code == 404


async def test_no_path_makes_an_endpoint_public(shared_valkey: RealServer) -> None:
    paths = ("/lanebus/static/../api/sessions", "/static/..%2fapi/sessions", "/lanebus//api/sessions", "//api/sessions")
    async with visitor(shared_valkey) as client:
        del client.headers["Authorization"]
        for path in paths:
            assert (await client.get(f"http://{HOST}{path}")).status_code in {401, 404}


async def test_the_application_works_in_another_one(shared_valkey: RealServer) -> None:
    async with visitor(shared_valkey, "/tools/lanebus", "/tools/lanebus") as client:
        assert (await client.get("/tools/lanebus/api/sessions")).status_code == 200
        del client.headers["Authorization"]
        assert "/tools/lanebus/static/app/main.js" in (await client.get("/tools/lanebus/")).text
        assert (await client.get("/tools/lanebus/static/app/main.js")).status_code == 200
        assert (await client.get("/tools/lanebus/api/sessions")).status_code == 401


async def test_the_start_url_has_the_base_path(shared_valkey: RealServer) -> None:
    async with shared_valkey.bus() as bus, serving(bus, base_path="/lanebus/") as served:
        assert served.url == f"http://127.0.0.1:{served.port}/lanebus/#token={TOKEN}"
        async with httpx2.AsyncClient() as client:
            assert (await client.get(served.url)).status_code == 200
