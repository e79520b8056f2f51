"""The guard alone, before an application that accepts everything."""

from collections.abc import MutableMapping

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from lanebus.handlers.ui.auth import Guard, cookie_name, local_hosts

HOST = "127.0.0.1:8420"
TOKEN = "start-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
    """The guarded application. Its response shows that the request got through."""
    await PlainTextResponse("reached")(scope, receive, send)


GUARD = Guard(guarded, token=TOKEN, allowed_hosts={*local_hosts(8420), "bus.example.com"}, headers=[("X-Guarded", "1")])


def visitor(**headers: str) -> httpx2.AsyncClient:
    """A client that sends these headers in addition to its own."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=GUARD), base_url=f"http://{HOST}", headers=headers)


# --- hosts and origins --------------------------------------------------------------------------------------------

REFUSED_HOSTS = [
    *("evil.example", "evil.example:8420", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8421", "127.0.0.1.:8420"),
    *("0.0.0.0:8420", "localhost", "localhost.:8420", "localhost:84200", "localhost.evil.example:8420", "[::]:8420"),
    *("127.0.0.2:8420", "[::1]", "127.1:8420", "2130706433:8420", "0x7f.1:8420", "bus.example.com:8420"),
    *("user@127.0.0.1:8420", ""),
]  # fmt: skip
REFUSED_ORIGINS = [
    *("null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8421", "http://localhost:8420", "file://"),
    *("http://127.0.0.1.:8420", "http://0.0.0.0:8420", "http://127.0.0.1:8420.evil.example", "ws://127.0.0.1:8420"),
    *("http://127.0.0.1:8420/", "", "http://[::1]:8420", "chrome-extension://abc"),
]


@pytest.mark.parametrize("host", REFUSED_HOSTS)
async def test_an_unknown_host_is_refused(host: str) -> None:
    async with visitor(Host=host, **BEARER) as client:
        reply = await client.get("/api/sessions")
    assert (reply.status_code, reply.json()["error"]) == (403, "host_refused")


@pytest.mark.parametrize("origin", REFUSED_ORIGINS)
async def test_a_foreign_origin_can_neither_read_nor_write(origin: str) -> None:
    async with visitor(Origin=origin, **BEARER) as client:
        replies = [
            await client.get("/"),
            await client.get("/api/sessions"),
            await client.post("/api/sessions/s1/messages", json={"text": "hi"}),
        ]
        assert [(reply.status_code, reply.json()["error"]) for reply in replies] == [(403, "origin_refused")] * 3


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        *((host, None) for host in sorted({*local_hosts(8420), "bus.example.com", "LOCALHOST:8420"})),
        *((host, f"http://{host}") for host in sorted(local_hosts(8420))),
        ("bus.example.com", "https://bus.example.com"),
    ],
)
async def test_known_hosts_and_the_own_origin_are_accepted(host: str, origin: str | None) -> None:
    headers = {"Host": host, **({"Origin": origin} if origin else {}), **BEARER}
    async with visitor(**headers) as client:
        assert (await client.get("/api/sessions")).status_code == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
async def test_requests_caused_by_another_site_are_refused(site: str, status: int) -> None:
    async with visitor(**{"Sec-Fetch-Site": site}, **BEARER) as client:
        assert (await client.get("/api/sessions")).status_code == status
        assert (await client.get("/")).status_code == status


async def test_a_preflight_is_refused_and_no_response_allows_another_origin() -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with visitor(Origin="http://evil.example", **asked) as client:
        reply = await client.options("/api/sessions/s1/messages")
    assert reply.status_code == 403
    assert not [name for name in reply.headers if name.lower().startswith("access-control")]


async def test_two_host_headers_are_refused() -> None:
    sent: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, object]) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            assert isinstance(status, int)
            sent.append(status)

    headers = [(b"host", HOST.encode()), (b"host", b"evil.example"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/api/sessions", "query_string": b"", "headers": headers}
    await GUARD(scope, receive, send)
    assert sent == [403]


# --- the start token ----------------------------------------------------------------------------------------------


async def test_the_printed_url_sets_a_cookie_and_redirects_without_the_token() -> None:
    async with visitor() as client:
        opened = await client.get("/", params={"token": TOKEN})
        assert (opened.status_code, opened.headers["location"]) == (303, "/")
        cookie = opened.headers["set-cookie"]
        assert cookie.startswith(f"{cookie_name(HOST)}={TOKEN};")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Max-Age" not in cookie
        page = await client.get("/")
        assert (page.status_code, page.text) == (200, "reached")
        assert (await client.get("/api/sessions")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/static/app/main.js", "/favicon.ico", "/api/sessions", "/api/sessions/s1/events"]
)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cookie": f"{cookie_name(HOST)}=wrong"},
        {"Cookie": f"{cookie_name(HOST)}="},
        {"Cookie": f"{cookie_name('127.0.0.1:8421')}={TOKEN}"},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
    ],
    ids=str,
)
async def test_requests_without_the_token_are_refused(path: str, headers: dict[str, str]) -> None:
    async with visitor(**headers) as client:
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize("offered", ["", "wrong", "é", "\ud800", TOKEN[:-1], TOKEN.upper(), "\0"])
async def test_a_wrong_token_in_the_url_is_refused_and_sets_no_cookie(offered: str) -> None:
    async with visitor() as client:
        reply = await client.get(f"/?token={offered.encode('utf-8', 'surrogatepass').hex(' ').replace(' ', '%')}")
        assert reply.status_code == 401
        assert "set-cookie" not in reply.headers


async def test_a_token_in_the_url_opens_only_the_page() -> None:
    async with visitor() as client:
        assert (await client.get("/api/sessions", params={"token": TOKEN})).status_code == 401
        assert (await client.post("/", params={"token": TOKEN})).status_code == 401


async def test_a_readers_token_and_its_cookie_read_and_do_not_write() -> None:
    guard = Guard(guarded, token=TOKEN, reader_token="reader", allowed_hosts=local_hosts(8420), headers=[])
    transport = httpx2.ASGITransport(app=guard)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        for method, code in (("GET", 200), ("HEAD", 200), ("POST", 403), ("PUT", 403), ("DELETE", 403), ("X", 403)):
            reply = await client.request(method, "/api/sessions", headers={"Authorization": "Bearer reader"})
            assert (method, reply.status_code) == (method, code)
        assert (await client.get("/", params={"token": "reader"})).status_code == 303
        assert (await client.get("/api/sessions")).status_code == 200
        assert (await client.post("/api/sessions/s1/messages", json={"text": "hi"})).status_code == 403
        assert (await client.get("/", params={"token": TOKEN})).status_code == 303
        assert (await client.post("/api/sessions/s1/messages", json={"text": "hi"})).status_code == 200


@pytest.mark.parametrize("reader", ["", TOKEN])
def test_an_empty_readers_token_or_one_equal_to_the_start_token_is_refused(reader: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Guard(guarded, token=TOKEN, reader_token=reader, allowed_hosts=[], headers=[])


def test_an_empty_start_token_is_refused() -> None:
    with pytest.raises(ValueError, match="a token is empty"):
        Guard(guarded, token="", allowed_hosts=[], headers=[])


async def test_every_response_has_the_headers_of_the_guard() -> None:
    async with visitor() as client:
        replies = [
            await client.get("/", headers=BEARER),
            await client.get("/"),
            await client.get("/", params={"token": TOKEN}),
            await client.get("/", headers={"Host": "evil"}),
        ]
    assert [(reply.status_code, reply.headers["x-guarded"]) for reply in replies] == [
        *((200, "1"), (401, "1"), (303, "1"), (403, "1")),
    ]


async def test_a_web_socket_is_closed_at_once() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message["type"])

    await GUARD({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == ["websocket.close"]
