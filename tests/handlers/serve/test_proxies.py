"""What trusted proxies say about a request is believed, and what others say is ignored."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

import httpx2
import pytest

from lanebus.access import AccessBounds
from lanebus.handlers.serve import Identify, Principal
from lanebus.handlers.serve.errors import InvalidProxy
from lanebus.handlers.serve.guard import parse_proxies
from lanebus.handlers.serve.server import create_app
from tests.support.page.serving import TOKEN
from tests.support.serve import Client, UiBounds
from tests.support.servers.real import RealServer

__all__ = ()

PROXIES = ["10.0.0.4", "192.168.0.0/16", "fd00::/8"]
PROXY, PUBLIC, INNER = "10.0.0.4", "bus.example.com", "lanebus:8420"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
WRONG = {"Authorization": "Bearer wrong"}


class Seen:
    """A hook that names everyone, and keeps the addresses of the connections."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    async def identify(self, headers: Mapping[str, str], address: str) -> Principal:
        del headers
        self.addresses.append(address)
        return Principal(name="ann", actions=("*",))


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the addresses of clients in the audit log."""
    caplog.set_level(logging.DEBUG, "lanebus.audit")
    return lambda: [str(vars(each)["client"]) for each in caplog.records if each.name == "lanebus.audit"]


@asynccontextmanager
async def visitor(
    server: RealServer,
    peer: str,
    identify: Identify | None = None,
    *,
    host: str = PUBLIC,
    proxies: Iterable[str] = PROXIES,
    bounds: UiBounds | None = None,
) -> AsyncGenerator[Client]:
    """Yield a client at an address."""
    async with server.bus() as bus:
        app = create_app(
            bus,
            token=TOKEN,
            identify=identify,
            allowed_hosts=[PUBLIC, INNER],
            trusted_proxies=proxies,
            bounds=bounds or UiBounds(),
        )
        transport = httpx2.ASGITransport(app=app, client=(peer, 4711))
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            yield client


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *((text, "such as 10.0.0.4") for text in ("", "*", "proxy.internal", "10.0.0", "10.0.0.4:80", "10.0.0.0/33")),
        ("10.0.0.4/24", "write the network as 10.0.0.0/24"),
        ("10.0.0.4, 10.0.0.5", "such as 10.0.0.4"),
        *((text, "name your proxies") for text in ("0.0.0.0/0", "::/0")),
    ],
)
def test_what_is_no_address_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(InvalidProxy, match=remedy) as caught:
        parse_proxies([text])
    assert caught.value.proxy == text


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
    shared_valkey: RealServer, audited: Callable[[], list[str]], peer: str, forwarded: str, address: str
) -> None:
    async with visitor(shared_valkey, peer) as client:
        reply = await client.get("/api/sessions", headers={**BEARER, "X-Forwarded-For": forwarded})
    assert (reply.status_code, audited()) == (200, [address])


async def test_several_headers_of_one_name_are_read_as_one(
    shared_valkey: RealServer, audited: Callable[[], list[str]]
) -> None:
    forwarded = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "203.0.113.7")]
    async with visitor(shared_valkey, PROXY) as client:
        await client.get("/api/sessions", headers=[*BEARER.items(), *forwarded])
    assert audited() == ["203.0.113.7"]


async def test_the_hook_identify_gets_the_address_of_the_connection_to_decide_whose_headers_it_believes(
    shared_valkey: RealServer, audited: Callable[[], list[str]]
) -> None:
    seen = Seen()
    for peer in (PROXY, "::ffff:10.0.0.4", "10.0.0.5"):
        async with visitor(shared_valkey, peer, seen.identify) as client:
            await client.get("/api/sessions", headers={"X-Forwarded-For": "203.0.113.7"})
    assert seen.addresses == [PROXY, PROXY, "10.0.0.5"]
    assert audited() == ["203.0.113.7", "203.0.113.7", "10.0.0.5"]


@pytest.mark.parametrize(("peer", "statuses"), [(PROXY, [401, 401, 429, 401]), ("10.0.0.5", [401, 429, 429, 429])])
async def test_wrong_tokens_are_counted_by_the_client_and_a_forged_address_helps_nobody(
    shared_valkey: RealServer, peer: str, statuses: list[int]
) -> None:
    bounds = UiBounds(access=AccessBounds(wrong_burst=1, wrong_per_second=0.001))
    async with visitor(shared_valkey, peer, bounds=bounds) as client:
        found = [
            await client.get("/api/sessions", headers={**WRONG, "X-Forwarded-For": address})
            for address in ("203.0.113.1", "203.0.113.2", "6.6.6.6, 203.0.113.2", "203.0.113.3")
        ]
    assert [reply.status_code for reply in found] == statuses


async def test_the_host_and_the_scheme_of_a_trusted_proxy_are_those_of_the_page(shared_valkey: RealServer) -> None:
    async def status(peer: str, host: str, *headers: tuple[str, str]) -> int:
        async with visitor(shared_valkey, peer, host=host) as client:
            return (await client.get("/api/sessions", headers=[*BEARER.items(), *headers])).status_code

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


async def test_the_header_forwarded_is_not_believed(
    shared_valkey: RealServer, audited: Callable[[], list[str]]
) -> None:
    headers = {**BEARER, "Forwarded": "for=203.0.113.7;host=evil.example;proto=https"}
    async with visitor(shared_valkey, PROXY) as client:
        reply = await client.get("/api/sessions", headers=headers)
    assert (reply.status_code, audited()) == (200, [PROXY])


async def test_without_trusted_proxies_no_header_is_believed(
    shared_valkey: RealServer, audited: Callable[[], list[str]]
) -> None:
    headers = {**BEARER, "X-Forwarded-For": "203.0.113.7", "X-Forwarded-Host": "evil.example"}
    async with visitor(shared_valkey, "127.0.0.1", proxies=()) as client:
        assert (await client.get("/api/sessions", headers=headers)).status_code == 200
    assert audited() == ["127.0.0.1"]
