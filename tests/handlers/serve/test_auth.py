"""The guard alone, before an application that accepts everything."""

from collections.abc import Mapping, MutableMapping

import httpx2
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from lanebus.access import AccessBounds
from lanebus.handlers.serve import Principal
from lanebus.handlers.serve.access.access import Access, RateLimit
from lanebus.handlers.serve.access.credentials import DEFAULT_ACCESS_BOUNDS, Credentials
from lanebus.handlers.serve.errors import InvalidHost
from lanebus.handlers.serve.guard import CrossOrigin, Guard, local_hosts, parse_host
from tests.support.serve import Client, HttpBounds, error_of

HOST = "127.0.0.1:8420"
TOKEN = "start-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
    """The guarded application. Its response shows that the request got through."""
    await PlainTextResponse("reached")(scope, receive, send)


def guard(bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS) -> Guard:
    """A guard that has counted nothing yet."""
    access = Access(Credentials(TOKEN, "reader", bounds=bounds), bounds=bounds)
    hosts = {*local_hosts(8420), "bus.example.com"}
    cross_origin = CrossOrigin([], methods=lambda _: (), seconds=600)
    return Guard(guarded, access=access, allowed_hosts=hosts, headers=[("X-Guarded", "1")], cross_origin=cross_origin)


GUARD = guard()


def visitor(app: Guard | None = None, /, *, address: str = "127.0.0.1", **headers: str) -> Client:
    """A client at an address that sends these headers in addition to its own."""
    transport = httpx2.ASGITransport(app=app or GUARD, client=(address, 1))
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}", headers=headers)


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
    async with visitor(None, Host=host, **BEARER) as client:
        reply = await client.get("/api/sessions")
    assert error_of(reply) == (403, "host_refused")


@pytest.mark.parametrize("origin", REFUSED_ORIGINS)
async def test_a_foreign_origin_can_neither_read_nor_write(origin: str) -> None:
    async with visitor(None, Origin=origin, **BEARER) as client:
        replies = [
            await client.get("/"),
            await client.get("/api/sessions"),
            await client.post("/api/sessions/s1/messages", json={"text": "hi"}),
        ]
        assert [error_of(reply) for reply in replies] == [(403, "origin_refused")] * 3


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"Origin": "https://evil.example"}, "https://evil.example"),
        ({"Origin": "https://" + "x" * 300}, "unprintable"),
        ({"Origin": "https://evil.example\t\xe9"}, "unprintable"),
        ({"Sec-Fetch-Site": "cross-site"}, ""),
        ({"Host": "evil.example", "Origin": "https://evil.example"}, ""),
    ],
)
async def test_the_audit_line_of_a_refused_origin_names_it(
    headers: dict[str, str], origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    async with visitor(None, **BEARER) as client:
        assert (await client.get("/api/sessions", headers=sent)).status_code == 403
    (line,) = [vars(record) for record in caplog.records if record.name == "lanebus.audit"]
    assert (line["event"], line["origin"]) == ("access.refused", origin)


@pytest.mark.parametrize("host", ["bus.example.com", "BUS.example.com:8420", "127.0.0.1:80", "[::1]:8420", "a_b"])
def test_a_host_is_read_as_clients_name_it(host: str) -> None:
    assert parse_host(host) == host.lower()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("http://bus.example.com", "leave out the scheme and the path: bus.example.com"),
        ("https://bus.example.com:8420/page", "leave out the scheme and the path: bus.example.com:8420"),
        *((text, "name each host") for text in ("*", "*.example.com")),
        *((text, "write HOST:PORT") for text in ("", "a b", "a@b", "a:b", "bus.example.com/", "http://", "::1", "a\n")),
    ],
)
def test_what_is_no_host_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InvalidHost, match=remedy) as caught:
        parse_host(text)
    assert caught.value.host == text


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
    async with visitor(None, **headers) as client:
        assert (await client.get("/api/sessions")).status_code == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
async def test_requests_caused_by_another_site_are_refused(site: str, status: int) -> None:
    async with visitor(None, **{"Sec-Fetch-Site": site}, **BEARER) as client:
        assert (await client.get("/api/sessions")).status_code == status
        assert (await client.get("/")).status_code == status


async def test_a_preflight_is_refused_and_no_response_allows_another_origin() -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    async with visitor(None, Origin="http://evil.example", **asked) as client:
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


# --- tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/static/app/main.js", "/favicon.ico"])
async def test_the_files_of_the_page_need_no_token_and_no_response_sets_a_cookie(path: str) -> None:
    async with visitor() as client:
        for query in ("", f"?token={TOKEN}"):
            reply = await client.get(path + query)
            assert (reply.status_code, reply.text) == (200, "reached")
            assert "set-cookie" not in reply.headers
        assert (await client.post(path)).status_code == 401


@pytest.mark.parametrize("path", ["/api/access", "/api/sessions", "/api/sessions/s1/events", "/nothing"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({"Cookie": f"{name}={TOKEN}"} for name in ("lanebus_127_0_0_1_8420", "token", "Authorization")),
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN.upper()}"},
    ],
    ids=str,
)
async def test_requests_without_the_token_in_the_header_are_refused(path: str, headers: dict[str, str]) -> None:
    async with visitor(guard(), **headers) as client:
        reply = await client.get(path, params={"token": TOKEN})
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("reader", ["", TOKEN])
def test_an_empty_readers_token_or_one_equal_to_the_start_token_is_refused(reader: str) -> None:
    with pytest.raises(ValueError, match="token"):
        Credentials(TOKEN, reader)


def test_an_empty_start_token_is_refused() -> None:
    with pytest.raises(ValueError, match="a token is empty"):
        Credentials("")


# --- wrong tokens and many requests -------------------------------------------------------------------------------


async def test_an_address_that_sends_wrong_tokens_has_to_wait_and_clients_that_are_in_use_do_not() -> None:
    tight = guard(AccessBounds(wrong_burst=3, wrong_per_second=0.01))
    async with visitor(tight, **BEARER) as client:
        assert (await client.get("/api/sessions")).status_code == 200
    async with visitor(tight) as client:
        found = [
            await client.get("/api/sessions", headers={"Authorization": f"Bearer {number}", "X-Forwarded-For": number})
            for number in "123456"
        ]
        assert [reply.status_code for reply in found] == [401, 401, 401, 429, 429, 429]
        assert 1 <= int(found[-1].headers["retry-after"]) <= 100
        assert found[-1].json()["error"] == "too_many_wrong_tokens"
        assert (await client.get("/api/sessions", headers=BEARER)).status_code == 200
        reply = await client.get("/api/sessions", headers={"Authorization": "Bearer reader"})
        assert reply.status_code == 429  # a right guess looks like a wrong one


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:0:0:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("unknown", "", False),
    ],
)
async def test_the_addresses_of_an_ipv6_network_are_throttled_as_one(first: str, second: str, is_one: bool) -> None:
    tight, wrong = guard(AccessBounds(wrong_burst=1, wrong_per_second=0.001)), {"Authorization": "Bearer wrong"}
    async with visitor(tight, address=first, **wrong) as one, visitor(tight, address=second, **wrong) as other:
        assert (await one.get("/api/sessions")).status_code == 401
        assert (await other.get("/api/sessions")).status_code == (429 if is_one else 401)


async def test_headers_of_one_name_are_joined_and_a_head_over_the_bounds_is_refused_before_the_token() -> None:
    seen = list[Mapping[str, str]]()

    async def identify(headers: Mapping[str, str], address: str) -> Principal:
        del address
        seen.append(headers)
        return Principal(name="ann")

    access = Access(Credentials(TOKEN), identify=identify)
    cross_origin = CrossOrigin([], methods=lambda _: (), seconds=600)
    bounds = HttpBounds(headers=10, head_bytes=1_000)
    guarding = Guard(guarded, access=access, allowed_hosts=[HOST], headers=[], cross_origin=cross_origin, bounds=bounds)
    async with visitor(guarding) as client:
        assert (await client.get("/x", headers=[("a", "1"), ("b", "2"), ("A", "3")])).status_code == 200
        for reply in (
            await client.get("/x", headers=[("a", "")] * 20),
            await client.get("/x", headers=[("a", "x" * 1_000)]),
            await client.get("/" + "x" * 1_000),
            await client.get("/?" + "x" * 1_000),
        ):
            assert error_of(reply) == (431, "head_too_large")
    (headers,) = seen
    assert (headers["a"], headers["b"]) == ("1, 3", "2")


async def test_a_principal_that_sends_too_many_requests_has_to_wait_and_others_do_not() -> None:
    tight = guard(AccessBounds(burst=2, requests_per_second=0.01))
    async with visitor(tight, **BEARER) as client:
        found = [await client.get("/api/sessions") for _ in range(3)]
        assert [reply.status_code for reply in found] == [200, 200, 429]
        assert 1 <= int(found[-1].headers["retry-after"]) <= 100
        other = await client.get("/api/sessions", headers={"Authorization": "Bearer reader"})
        assert other.status_code == 200
        assert (await client.get("/")).status_code == 200


def test_a_rate_limit_recovers_with_time_and_forgets_the_least_recent_key() -> None:
    now = 0.0
    limit = RateLimit(2.0, 1, 2, lambda: now)
    assert (limit.take("a"), limit.take("a"), limit.wait("a")) == (0.0, 0.5, 0.5)
    assert limit.take("b") == 0.0
    now = 0.25
    assert (limit.wait("a"), limit.wait("a", 4.0)) == (0.25, 0.0)
    assert limit.take("c") == 0.0
    assert (len(limit), limit.wait("a"), limit.wait("c")) == (2, 0.0, 0.5)


async def test_every_response_has_the_headers_of_the_guard() -> None:
    async with visitor() as client:
        replies = [
            await client.get("/", headers=BEARER),
            await client.get("/api/sessions"),
            await client.get("/"),
            await client.get("/", headers={"Host": "evil"}),
        ]
    assert [(reply.status_code, reply.headers["x-guarded"]) for reply in replies] == [
        *((200, "1"), (401, "1"), (200, "1"), (403, "1"))
    ]


async def test_a_web_socket_is_closed_at_once() -> None:
    sent: list[object] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message["type"])

    await GUARD({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == ["websocket.close"]
