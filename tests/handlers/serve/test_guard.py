"""The guard of each request: hosts, origins, proxies, base paths, tokens, and the limits of who sends too much."""

import logging
from collections.abc import Callable, Mapping, MutableMapping

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from lanebus import Bus
from lanebus.access import AccessBounds
from lanebus.handlers.serve import Principal
from lanebus.handlers.serve.access.access import Access, RateLimit
from lanebus.handlers.serve.access.credentials import DEFAULT_ACCESS_BOUNDS, Credentials
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.errors import InvalidBasePath, InvalidHost, InvalidOrigin, InvalidProxy
from lanebus.handlers.serve.guard import CrossOrigin, Guard, parse_base_path, parse_host, parse_origin, parse_proxies
from tests.support.page.serving import serving
from tests.support.serve import (
    BEARER,
    HOST,
    TOKEN,
    Client,
    HttpBounds,
    UiBounds,
    create_app,
    error_of,
    local_hosts,
    visitor,
)

SESSIONS = "/api/sessions"
WRONG = {"Authorization": "Bearer wrong"}
APP = "http://localhost:5173"


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    """The guarded application. Its response shows that the request got through."""
    await PlainTextResponse("reached")(scope, receive, send)


def guard(bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS) -> Guard:
    """A guard that has counted nothing yet."""
    access = Access(Credentials(TOKEN, "reader", bounds=bounds), bounds=bounds)
    hosts = {*local_hosts(8420), "bus.example.com"}
    cross_origin = CrossOrigin([], methods=lambda _: (), seconds=600)
    return Guard(reached, access=access, allowed_hosts=hosts, headers=[("X-Guarded", "1")], cross_origin=cross_origin)


def guarded(**headers: str) -> Client:
    return visitor(guard(), **headers)


def parse_base(text: str) -> str:
    return parse_base_path(text, [each.path for each in endpoints()])


# --- what users set -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_host, {"bus.example.com": "", "BUS.example.com:8420": "bus.example.com:8420"}),
        (parse_host, dict.fromkeys(("127.0.0.1:80", "[::1]:8420", "a_b"), "")),
        (parse_origin, dict.fromkeys(("https://app.example.com", APP, "http://[::1]:5173", "tauri://localhost"), "")),
        (
            parse_origin,
            dict.fromkeys(("HTTPS://App.Example.Com", "https://app.example.com:443"), "https://app.example.com"),
        ),
        (parse_origin, {"http://app.example.com:80": "http://app.example.com", "http://app.example.com:443": ""}),
        (parse_base, {"/lanebus": "", "/lanebus/": "/lanebus", "/a/b-c.d~e_f": ""}),
    ],
    ids=["hosts", "more hosts", "origins", "long origins", "ports", "base paths"],
)
def test_a_host_an_origin_and_a_base_path_are_read_as_clients_name_them(
    parse: Callable[[str], str], texts: dict[str, str]
) -> None:
    """An empty text stands for the same one."""
    assert {text: parse(text) for text in texts} == {text: expected or text for text, expected in texts.items()}


def test_a_slash_is_no_base_path() -> None:
    assert (parse_base(""), parse_base("/")) == ("", "")


NO_HOST = {
    "leave out the scheme and the path: bus.example.com": ("http://bus.example.com",),
    "leave out the scheme and the path: bus.example.com:8420": ("https://bus.example.com:8420/page",),
    "name each host": ("*", "*.example.com"),
    "write HOST:PORT": ("", "a b", "a@b", "a:b", "bus.example.com/", "http://", "::1", "a\n"),
}
NO_ORIGIN = {
    "name each origin": ("*", "null", "NULL", "https://*.example.com", "http://localhost:*"),
    "leave out the path: https://app.example.com": ("https://app.example.com/", "https://app.example.com/chat?a#b"),
    "from 1 to 65535": ("http://localhost:0", "http://localhost:99999"),
    "as browsers send it": (
        *(
            "",
            "app.example.com",
            "localhost:5173",
            "https://",
            "file:///x",
            "https://a@b.example",
            "https://bücher.example",
        ),
        *("https://a b", "https://a.example\n", "https://a.example https://b.example"),
    ),
}
NO_BASE_PATH = {
    "such as /lanebus": (
        *("lanebus", "/a//b", "/a/../b", "/.", "/a b", "/a?b", "/ä", "/a%20b", "//evil.example", "https://a.example/b"),
        *("/a\n", '/"><script>'),
    ),
    "choose another one": (
        *("/api", "/api/sessions", "/static", "/chat", "/agui", "/agui/x", "/chat/s1/stream", "/api/sessions/s1"),
        "/favicon.ico",
    ),
}
NO_PROXY = {
    "such as 10.0.0.4": ("", "*", "proxy.internal", "10.0.0", "10.0.0.4:80", "10.0.0.0/33", "10.0.0.4, 10.0.0.5"),
    "write the network as 10.0.0.0/24": ("10.0.0.4/24",),
    "name your proxies": ("0.0.0.0/0", "::/0"),
}


def _parse_proxy(text: str) -> object:
    return parse_proxies([text])


@pytest.mark.parametrize(
    ("parse", "field", "error", "wrong"),
    [
        (parse_host, "host", InvalidHost, NO_HOST),
        (parse_origin, "origin", InvalidOrigin, NO_ORIGIN),
        (parse_base, "path", InvalidBasePath, NO_BASE_PATH),
        (_parse_proxy, "proxy", InvalidProxy, NO_PROXY),
    ],
    ids=["host", "origin", "base path", "proxy"],
)
def test_what_is_no_host_origin_base_path_or_proxy_is_refused_with_a_remedy(
    parse: Callable[[str], object], field: str, error: type[Exception], wrong: dict[str, tuple[str, ...]]
) -> None:
    for remedy, texts in wrong.items():
        for text in texts:
            with pytest.raises(error, match=remedy) as caught:
                parse(text)
            assert vars(caught.value)[field] == text


# --- hosts and origins --------------------------------------------------------------------------------------------

REFUSED_HOSTS = [
    *("evil.example", "evil.example:8420", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8421", "127.0.0.1.:8420"),
    *("0.0.0.0:8420", "localhost", "localhost.:8420", "localhost:84200", "localhost.evil.example:8420", "[::]:8420"),
    *("127.0.0.2:8420", "[::1]", "127.1:8420", "2130706433:8420", "0x7f.1:8420", "bus.example.com:8420"),
    *("user@127.0.0.1:8420", ""),
]
REFUSED_ORIGINS = [
    *("null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:8421", "http://localhost:8420", "file://"),
    *("http://127.0.0.1.:8420", "http://0.0.0.0:8420", "http://127.0.0.1:8420.evil.example", "ws://127.0.0.1:8420"),
    *("http://127.0.0.1:8420/", "", "http://[::1]:8420", "chrome-extension://abc"),
]


async def test_unknown_hosts_and_foreign_origins_can_neither_read_nor_write() -> None:
    client = guarded(**BEARER)
    for host in REFUSED_HOSTS:
        assert error_of(await client.get(SESSIONS, headers={"Host": host})) == (403, "host_refused"), host
    for origin in REFUSED_ORIGINS:
        for method, path in (("GET", "/"), ("GET", SESSIONS), ("POST", f"{SESSIONS}/s1/messages")):
            reply = await client.request(method, path, headers={"Origin": origin})
            assert error_of(reply) == (403, "origin_refused"), origin
    sent = [("Host", HOST), ("Host", "evil.example"), *BEARER.items()]
    assert error_of(await client.get(SESSIONS, headers=sent)) == (403, "host_refused")


async def test_known_hosts_the_own_origin_and_requests_of_the_own_site_are_accepted() -> None:
    own = "bus.example.com"
    pairs: list[tuple[str, str | None]] = [(host, None) for host in sorted({*local_hosts(8420), own, "LOCALHOST:8420"})]
    pairs += [(host, f"http://{host}") for host in sorted(local_hosts(8420))] + [(own, f"https://{own}")]
    client = guarded(**BEARER)
    for host, origin in pairs:
        sent = {"Host": host, **({"Origin": origin} if origin else {})}
        assert (await client.get(SESSIONS, headers=sent)).status_code == 200, sent
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        for path in (SESSIONS, "/"):
            assert (await client.get(path, headers={"Sec-Fetch-Site": site})).status_code == status


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
    assert (await guarded(**BEARER).get(SESSIONS, headers=sent)).status_code == 403
    (line,) = [vars(record) for record in caplog.records if record.name == "lanebus.audit"]
    assert (line["event"], line["origin"]) == ("access.refused", origin)


async def test_a_preflight_is_refused_and_no_response_allows_another_origin() -> None:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    reply = await guarded(Origin="http://evil.example", **asked).options(f"{SESSIONS}/s1/messages")
    assert reply.status_code == 403
    assert not [name for name in reply.headers if name.lower().startswith("access-control")]


# --- tokens -------------------------------------------------------------------------------------------------------


async def test_the_files_of_the_page_need_no_token_and_no_response_sets_a_cookie() -> None:
    client = guarded()
    for path in ("/", "/static/app/main.js", "/favicon.ico"):
        for query in ("", f"?token={TOKEN}"):
            reply = await client.get(path + query)
            assert (reply.status_code, reply.text) == (200, "reached")
            assert "set-cookie" not in reply.headers
        assert (await client.post(path)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        *({"Cookie": f"{name}={TOKEN}"} for name in ("lanebus_127_0_0_1_8420", "token", "Authorization")),
        WRONG,
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN.upper()}"},
    ],
    ids=str,
)
async def test_requests_without_the_token_in_the_header_are_refused(headers: dict[str, str]) -> None:
    client = guarded(**headers)
    for path in ("/api/access", SESSIONS, f"{SESSIONS}/s1/events", "/nothing"):
        reply = await client.get(path, params={"token": TOKEN})
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")


def test_an_empty_token_and_a_readers_token_that_is_empty_or_equal_are_refused() -> None:
    for tokens in ((TOKEN, ""), (TOKEN, TOKEN), ("", None)):
        with pytest.raises(ValueError, match="token"):
            Credentials(*tokens)


# --- wrong tokens and many requests -------------------------------------------------------------------------------


async def test_an_address_that_sends_wrong_tokens_has_to_wait_and_clients_that_are_in_use_do_not() -> None:
    client = visitor(guard(AccessBounds(wrong_burst=3, wrong_per_second=0.01)))
    assert (await client.get(SESSIONS, headers=BEARER)).status_code == 200
    found = [
        await client.get(SESSIONS, headers={"Authorization": f"Bearer {number}", "X-Forwarded-For": number})
        for number in "123456"
    ]
    assert [reply.status_code for reply in found] == [401, 401, 401, 429, 429, 429]
    assert 1 <= int(found[-1].headers["retry-after"]) <= 100
    assert found[-1].json()["error"] == "too_many_wrong_tokens"
    assert (await client.get(SESSIONS, headers=BEARER)).status_code == 200
    reply = await client.get(SESSIONS, headers={"Authorization": "Bearer reader"})
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
    tight = guard(AccessBounds(wrong_burst=1, wrong_per_second=0.001))
    for address, status in ((first, 401), (second, 429 if is_one else 401)):
        assert (await visitor(tight, address=address, **WRONG).get(SESSIONS)).status_code == status


async def test_headers_of_one_name_are_joined_and_a_head_over_the_bounds_is_refused_before_the_token() -> None:
    seen = list[Mapping[str, str]]()

    async def identify(headers: Mapping[str, str], address: str) -> Principal:
        del address
        seen.append(headers)
        return Principal(name="ann")

    access = Access(Credentials(TOKEN), identify=identify)
    cross_origin = CrossOrigin([], methods=lambda _: (), seconds=600)
    bounds = HttpBounds(headers=10, head_bytes=1_000)
    client = visitor(
        Guard(reached, access=access, allowed_hosts=[HOST], headers=[], cross_origin=cross_origin, bounds=bounds)
    )
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


def test_a_rate_limit_recovers_with_time_and_forgets_the_least_recent_key() -> None:
    now = 0.0
    limit = RateLimit(2.0, 1, 2, lambda: now)
    assert (limit.take("a"), limit.take("a"), limit.wait("a")) == (0.0, 0.5, 0.5)
    assert limit.take("b") == 0.0
    now = 0.25
    assert (limit.wait("a"), limit.wait("a", 4.0)) == (0.25, 0.0)
    assert limit.take("c") == 0.0
    assert (len(limit), limit.wait("a"), limit.wait("c")) == (2, 0.0, 0.5)


async def test_every_response_has_the_headers_of_the_guard_and_a_web_socket_is_closed_at_once() -> None:
    client, closed = guarded(), list[object]()
    for path, headers, status in (
        ("/", BEARER, 200),
        (SESSIONS, {}, 401),
        ("/", {}, 200),
        ("/", {"Host": "evil"}, 403),
    ):
        reply = await client.get(path, headers=headers)
        assert (reply.status_code, reply.headers["x-guarded"]) == (status, "1")

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, object]) -> None:
        closed.append(message["type"])

    await guard()({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert closed == ["websocket.close"]


# --- other origins, allowed in an application -------------------------------------------------------------------------


def page(bus: Bus, headers: Mapping[str, str], bounds: UiBounds | None = None) -> Client:
    """Return a client of an application that allows `APP`."""
    app = create_app(
        bus, token=TOKEN, allowed_hosts=local_hosts(8420), allowed_origins=[APP], bounds=bounds or UiBounds()
    )
    return visitor(app, **headers)


def renamed(bus: Bus, url: str) -> Client:
    """Return a client of an application that has another name and allows no origin."""
    host = url.partition("://")[2]
    return visitor(create_app(bus, token=TOKEN, allowed_hosts=[host]), url=url, **BEARER)


async def test_a_page_of_an_allowed_origin_may_read_answers_and_the_headers_that_clients_need(bus: Bus) -> None:
    client = page(bus, {"Origin": APP, "Sec-Fetch-Site": "cross-site"})
    reply = await client.get(SESSIONS, headers=BEARER)
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, APP)
    exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
    assert {"location", "retry-after", "x-vercel-ai-ui-message-stream"} <= {*exposed}
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    assert (await client.options("/api/none", headers=asked)).status_code == 204
    reply = await client.post("/api/none", headers=BEARER)
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (404, APP)


async def test_an_allowed_origin_can_read_why_it_is_refused(bus: Bus) -> None:
    late = AccessBounds(burst=1, requests_per_second=0.01, wrong_burst=1, wrong_per_second=0.01)
    client = page(bus, {"Origin": APP}, UiBounds(access=late))
    for headers, status, error in (
        ({}, 401, "token_missing"),
        (BEARER, 200, None),
        (BEARER, 429, "too_many_requests"),
        (WRONG, 401, "token_unknown"),
        (WRONG, 429, "too_many_wrong_tokens"),
        ({**BEARER, "Host": "other.example"}, 403, "host_refused"),
    ):
        reply = await client.get(SESSIONS, headers=headers)
        assert (reply.status_code, reply.json().get("error")) == (status, error)
        assert reply.headers["access-control-allow-origin"] == APP
    assert "--allow-host other.example" in reply.json()["detail"]


async def test_another_origin_is_refused_also_beside_an_allowed_one_and_so_is_a_link_without_one(bus: Bus) -> None:
    client, evil = page(bus, BEARER), "http://evil.example"
    for origins in (["http://localhost:5174"], ["null"], [APP, evil], [f"{APP}.evil.example"], ["http://localhost"]):
        reply = await client.get(SESSIONS, headers=[("Origin", origin) for origin in origins])
        assert error_of(reply) == (403, "origin_refused")
        assert "access-control-allow-origin" not in reply.headers
        assert reply.headers["vary"] == "Origin"
        named = next(origin for origin in origins if origin != APP)
        assert f"--allow-origin {'ORIGIN' if named == 'null' else named}" in reply.json()["detail"]
    for path in ("/", f"{SESSIONS}/s1/events"):
        assert (await client.get(path, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403
    for headers in ({"Host": "<b>"}, {"Origin": "http://a' or"}):  # the answer does not repeat them
        assert not {*"<>'"} & {*(await client.get(SESSIONS, headers=headers)).json()["detail"]}


async def test_a_development_server_that_proxies_is_told_what_to_set(bus: Bus) -> None:
    site = {"Sec-Fetch-Site": "same-origin", "Origin": APP}
    client = page(bus, BEARER)
    kept = await client.get(SESSIONS, headers={**site, "Host": "localhost:5173"})
    assert "--allow-host localhost:5173" in kept.json()["detail"]
    for each in (client, renamed(bus, APP)):
        assert (await each.get(SESSIONS, headers=site)).status_code == 200


async def test_the_own_origin_has_the_scheme_of_the_request_if_it_is_https(bus: Bus) -> None:
    host = "bus.example.com"
    for scheme, own, status in (
        ("http", "http", 200),
        ("http", "https", 200),
        ("https", "https", 200),
        ("https", "http", 403),
    ):
        reply = await renamed(bus, f"{scheme}://{host}").get(SESSIONS, headers={"Origin": f"{own}://{host}"})
        assert reply.status_code == status, (scheme, own)


# --- proxies: what trusted ones say about a request is believed -------------------------------------------------------

PROXIES = ["10.0.0.4", "192.168.0.0/16", "fd00::/8"]
PROXY, PUBLIC, INNER = "10.0.0.4", "bus.example.com", "lanebus:8420"


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the addresses of clients in the audit log."""
    caplog.set_level(logging.DEBUG, "lanebus.audit")
    return lambda: [str(vars(each)["client"]) for each in caplog.records if each.name == "lanebus.audit"]


def behind(bus: Bus, peer: str, *, host: str = PUBLIC, bounds: UiBounds | None = None) -> Client:
    """Return a client at an address."""
    names, bounds = [PUBLIC, INNER], bounds or UiBounds()
    app = create_app(bus, token=TOKEN, allowed_hosts=names, trusted_proxies=PROXIES, bounds=bounds)
    return visitor(app, address=peer, url=f"http://{host}", **BEARER)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        (PROXY, "203.0.113.7", "203.0.113.7"),
        (PROXY, "6.6.6.6, 203.0.113.7", "203.0.113.7"),  # the client wrote the first one
        (PROXY, "6.6.6.6, 203.0.113.7, 192.168.3.4", "203.0.113.7"),  # through two proxies
        (PROXY, "203.0.113.7:50123", "203.0.113.7"),
        (PROXY, "[2001:db8::1]:50123", "2001:db8::1"),
        (PROXY, "", PROXY),
        (PROXY, "unknown", PROXY),
        (PROXY, "<script>", PROXY),
        ("::ffff:10.0.0.4", "203.0.113.7", "203.0.113.7"),  # as a socket for both versions shows it
        ("fd00::5", "203.0.113.7", "203.0.113.7"),
        ("10.0.0.5", "203.0.113.7", "10.0.0.5"),
        ("127.0.0.1", "203.0.113.7", "127.0.0.1"),
        ("::ffff:10.0.0.5", "203.0.113.7", "10.0.0.5"),
    ],
)
async def test_the_client_is_the_last_address_that_is_no_trusted_proxy(
    bus: Bus, audited: Callable[[], list[str]], peer: str, forwarded: str, address: str
) -> None:
    # Several headers of one name are read as one, and the header `Forwarded` is not believed.
    parts = [("X-Forwarded-For", part) for part in forwarded.split(", ")]
    more = ("Forwarded", "for=203.0.113.9;host=evil.example;proto=https")
    for headers in ([("X-Forwarded-For", forwarded)], [*parts, more]):
        assert (await behind(bus, peer).get(SESSIONS, headers=headers)).status_code == 200
    assert audited() == [address] * 2


async def test_the_hook_identify_gets_the_address_of_the_connection_to_decide_whose_headers_it_believes(
    bus: Bus, audited: Callable[[], list[str]]
) -> None:
    seen = list[str]()

    async def identify(headers: Mapping[str, str], address: str) -> Principal:
        del headers
        seen.append(address)
        return Principal(name="ann", actions=("*",))

    app = create_app(bus, identify=identify, allowed_hosts=[HOST], trusted_proxies=PROXIES)
    for peer in (PROXY, "::ffff:10.0.0.4", "10.0.0.5"):
        await visitor(app, address=peer).get(SESSIONS, headers={"X-Forwarded-For": "203.0.113.7"})
    assert seen == [PROXY, PROXY, "10.0.0.5"]
    assert audited() == ["203.0.113.7", "203.0.113.7", "10.0.0.5"]


@pytest.mark.parametrize(("peer", "statuses"), [(PROXY, [401, 401, 429, 401]), ("10.0.0.5", [401, 429, 429, 429])])
async def test_wrong_tokens_are_counted_by_the_client_and_a_forged_address_helps_nobody(
    bus: Bus, peer: str, statuses: list[int]
) -> None:
    client = behind(bus, peer, bounds=UiBounds(access=AccessBounds(wrong_burst=1, wrong_per_second=0.001)))
    addresses = ("203.0.113.1", "203.0.113.2", "6.6.6.6, 203.0.113.2", "203.0.113.3")
    found = [await client.get(SESSIONS, headers={**WRONG, "X-Forwarded-For": address}) for address in addresses]
    assert [reply.status_code for reply in found] == statuses


async def test_the_host_and_the_scheme_of_a_trusted_proxy_are_those_of_the_page(bus: Bus) -> None:
    async def status(peer: str, host: str, *headers: tuple[str, str]) -> int:
        return (await behind(bus, peer, host=host).get(SESSIONS, headers=headers)).status_code

    public, secure = ("X-Forwarded-Host", PUBLIC), ("X-Forwarded-Proto", "https")
    origin, plain_origin = ("Origin", f"https://{PUBLIC}"), ("Origin", f"http://{PUBLIC}")
    assert await status(PROXY, INNER, public, origin) == 200
    assert await status(PROXY, INNER, public, secure, origin) == 200
    assert await status(PROXY, INNER, public, secure, plain_origin) == 403
    assert await status(PROXY, INNER, public, ("Origin", f"http://{INNER}")) == 403
    assert await status(PROXY, INNER, ("X-Forwarded-Host", f"evil.example, {PUBLIC}"), origin) == 200
    assert await status(PROXY, INNER, ("X-Forwarded-Host", f"{PUBLIC}, evil.example")) == 403
    assert await status(PROXY, PUBLIC, ("X-Forwarded-Host", "evil.example")) == 403
    # A page of an attacker whose host name leads to the proxy may send this header, and some proxies pass it on.
    assert await status(PROXY, "evil.example", public) == 403
    assert await status("10.0.0.5", INNER, public, origin) == 403
    assert await status("10.0.0.5", PUBLIC, ("X-Forwarded-Host", "evil.example")) == 200
    # Without trust, a proxy may have added TLS or not, so both schemes are the page's own.
    assert await status("10.0.0.5", PUBLIC, secure, plain_origin) == 200


async def test_without_trusted_proxies_no_header_is_believed(bus: Bus, audited: Callable[[], list[str]]) -> None:
    headers = {**BEARER, "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "evil.example"}
    app = create_app(bus, token=TOKEN, allowed_hosts=[HOST])
    assert (await visitor(app).get(SESSIONS, headers=headers)).status_code == 200
    assert audited() == ["127.0.0.1"]


# --- the application below a base path, whether a proxy removes the path or not ---------------------------------------


def below(bus: Bus, base_path: str = "/lanebus") -> Starlette:
    return create_app(bus, token=TOKEN, allowed_hosts=local_hosts(8420), base_path=base_path)


@pytest.mark.parametrize("prefix", ["/lanebus", "", "/tools/lanebus"])
async def test_every_file_and_the_api_are_found_with_the_base_path_and_without_it_and_in_another_application(
    bus: Bus, prefix: str
) -> None:
    mounted = prefix if "tools" in prefix else ""
    base_path = mounted or "/lanebus"
    app = below(bus, base_path)
    client = visitor(Starlette(routes=[Mount(mounted, app)]) if mounted else app)
    index = await client.get(f"{prefix}/")
    assert (index.status_code, f"{base_path}/static/app/main.js" in index.text) == (200, True)
    assert '"/static/' not in index.text
    assert (await client.get(f"{prefix}/static/app/main.js")).status_code == 200
    document = await client.get(f"{prefix}/api/openapi.json")
    assert document.json()["servers"] == [{"url": base_path}]
    for headers, status in (({}, 401), (BEARER, 200)):
        assert (await client.get(f"{prefix}/api/sessions", headers=headers)).status_code == status
    assert (await client.get(f"{prefix}/chat/s1/stream", headers=BEARER)).status_code == 204


async def test_what_is_outside_of_the_base_path_is_not_found_and_no_path_makes_an_endpoint_public(bus: Bus) -> None:
    client = visitor(below(bus))
    for prefix in ("/other", "/lanebusx", "/LANEBUS", "/lanebus/lanebus"):
        assert (await client.get(f"{prefix}/api/sessions", headers=BEARER)).status_code == 404
    for prefix in ("/lanebus/static/..", "/static/..%2f", "/lanebus/", "/"):
        assert (await client.get(f"http://{HOST}{prefix}/api/sessions")).status_code in {401, 404}


async def test_the_page_and_its_start_url_have_the_base_path_with_a_slash_at_its_end_or_without(bus: Bus) -> None:
    reply = await visitor(below(bus)).get("/lanebus")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    async with serving(bus, base_path="/lanebus/") as served, httpx2.AsyncClient() as client:
        assert served.url == f"http://127.0.0.1:{served.port}/lanebus/#token={TOKEN}"
        assert (await client.get(served.url)).status_code == 200
