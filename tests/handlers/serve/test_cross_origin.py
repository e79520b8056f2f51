"""Origins besides the server's own."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

import httpx2
import pytest

from lanebus.access import AccessBounds
from lanebus.handlers.serve.errors import InvalidOrigin
from lanebus.handlers.serve.guard import local_hosts, parse_origin
from lanebus.handlers.serve.server import create_app
from tests.support.page.serving import TOKEN
from tests.support.serve import Client, UiBounds, error_of
from tests.support.servers.real import RealServer

__all__ = ()

HOST, APP = "127.0.0.1:8420", "http://localhost:5173"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LATE = AccessBounds(burst=1, requests_per_second=0.01, wrong_burst=1, wrong_per_second=0.01)


@asynccontextmanager
async def visitor(
    server: RealServer,
    headers: Mapping[str, str],
    *,
    bounds: UiBounds | None = None,
    allowed_hosts: Iterable[str] = (),
    base_url: str = f"http://{HOST}",
) -> AsyncGenerator[Client]:
    """Yield a client of an application that allows `APP`, or that has other names and allows no origin."""
    async with server.bus() as bus:
        app = create_app(
            bus,
            token=TOKEN,
            allowed_hosts=allowed_hosts or local_hosts(8420),
            allowed_origins=[] if allowed_hosts else [APP],
            bounds=bounds or UiBounds(),
        )
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=base_url, headers=headers) as client:
            yield client


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        *((same, same) for same in ("https://app.example.com", APP, "http://[::1]:5173", "tauri://localhost")),
        ("HTTPS://App.Example.Com", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:80", "http://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
    ],
)
def test_an_origin_is_read_as_browsers_send_it(text: str, origin: str) -> None:
    assert parse_origin(text) == origin


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *((text, "name each origin") for text in ("*", "null", "NULL", "https://*.example.com", "http://localhost:*")),
        ("https://app.example.com/", "leave out the path: https://app.example.com"),
        ("https://app.example.com/chat?a#b", "leave out the path: https://app.example.com"),
        ("http://localhost:0", "from 1 to 65535"),
        ("http://localhost:99999", "from 1 to 65535"),
        *((text, "as browsers send it") for text in ("", "app.example.com", "localhost:5173", "https://", "file:///x")),
        *((text, "as browsers send it") for text in ("https://a@b.example", "https://bücher.example", "https://a b")),
        *((text, "as browsers send it") for text in ("https://a.example\n", "https://a.example https://b.example")),
    ],
)
def test_what_is_no_origin_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InvalidOrigin, match=remedy) as caught:
        parse_origin(text)
    assert caught.value.origin == text


async def test_a_page_of_an_allowed_origin_may_read_answers_and_the_headers_that_clients_need(
    shared_valkey: RealServer,
) -> None:
    async with visitor(shared_valkey, {"Origin": APP, "Sec-Fetch-Site": "cross-site", **BEARER}) as client:
        reply = await client.get("/api/sessions")
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, APP)
        exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
        assert {"location", "retry-after", "x-vercel-ai-ui-message-stream"} <= {*exposed}
        assert reply.headers["cross-origin-resource-policy"] == "same-origin"


async def test_an_allowed_origin_can_read_why_it_is_refused(shared_valkey: RealServer) -> None:
    bounds = UiBounds(access=LATE)
    wrong = {"Authorization": "Bearer wrong"}
    async with visitor(shared_valkey, {"Origin": APP}, bounds=bounds) as client:
        replies = [
            await client.get("/api/sessions", headers=headers)
            for headers in ({}, BEARER, BEARER, wrong, wrong, {**BEARER, "Host": "other.example"})
        ]
    assert [(reply.status_code, reply.json().get("error")) for reply in replies] == [
        (401, "token_missing"),
        (200, None),
        (429, "too_many_requests"),
        (401, "token_unknown"),
        (429, "too_many_wrong_tokens"),
        (403, "host_refused"),
    ]
    assert {reply.headers["access-control-allow-origin"] for reply in replies} == {APP}
    assert "--allow-host other.example" in replies[-1].json()["detail"]


async def test_an_unknown_path_is_answered_with_404_that_the_page_can_read(shared_valkey: RealServer) -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    async with visitor(shared_valkey, {"Origin": APP}) as client:
        assert (await client.options("/api/none", headers=asked)).status_code == 204
        reply = await client.post("/api/none", headers=BEARER)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (404, APP)


@pytest.mark.parametrize(
    "origins",
    [["http://localhost:5174"], ["null"], [APP, "http://evil.example"], [f"{APP}.evil.example"], ["http://localhost"]],
)
async def test_another_origin_is_refused_also_beside_an_allowed_one(
    shared_valkey: RealServer, origins: list[str]
) -> None:
    async with visitor(shared_valkey, BEARER) as client:
        reply = await client.get("/api/sessions", headers=[("Origin", origin) for origin in origins])
    assert error_of(reply) == (403, "origin_refused")
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["vary"] == "Origin"
    named = next(origin for origin in origins if origin != APP)
    assert f"--allow-origin {'ORIGIN' if named == 'null' else named}" in reply.json()["detail"]


async def test_a_link_of_an_allowed_site_is_refused_because_it_has_no_origin(shared_valkey: RealServer) -> None:
    async with visitor(shared_valkey, {"Sec-Fetch-Site": "cross-site", **BEARER}) as client:
        assert (await client.get("/")).status_code == 403
        assert (await client.get("/api/sessions/s1/events")).status_code == 403


async def test_a_text_that_is_no_host_or_origin_is_not_repeated_in_the_answer(shared_valkey: RealServer) -> None:
    async with visitor(shared_valkey, {}) as client:
        for headers in ({"Host": "<b>"}, {"Origin": "http://a' or"}):
            text = (await client.get("/api/sessions", headers=headers)).json()["detail"]
            assert not {*"<>'"} & {*text}


async def test_a_development_server_that_proxies_is_told_what_to_set(shared_valkey: RealServer) -> None:
    site = {"Sec-Fetch-Site": "same-origin", "Origin": APP}
    async with visitor(shared_valkey, BEARER) as client:
        kept = await client.get("/api/sessions", headers={**site, "Host": "localhost:5173"})
        assert "--allow-host localhost:5173" in kept.json()["detail"]
        assert (await client.get("/api/sessions", headers=site)).status_code == 200
    async with visitor(shared_valkey, BEARER, allowed_hosts=["localhost:5173"], base_url=APP) as client:
        assert (await client.get("/api/sessions", headers=site)).status_code == 200


async def test_the_own_origin_has_the_scheme_of_the_request_if_it_is_https(shared_valkey: RealServer) -> None:
    found, host = dict[tuple[str, str], int](), "bus.example.com"
    for scheme in ("http", "https"):
        url = f"{scheme}://{host}"
        async with visitor(shared_valkey, BEARER, allowed_hosts=[host], base_url=url) as client:
            for own in ("http", "https"):
                reply = await client.get("/api/sessions", headers={"Origin": f"{own}://{host}"})
                found[scheme, own] = reply.status_code
    assert found == {("http", "http"): 200, ("http", "https"): 200, ("https", "https"): 200, ("https", "http"): 403}
