"""Connections of clients that read or send nothing, too much, or too slowly. Linux only: some tests read /proc."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import anyio
import httpx2
import pytest
from anyio.abc import Process

from lanebus import Bus, ExtensionMessage, Session
from lanebus.handlers.agent import ConnectionCounts
from lanebus.handlers.serve.guard import parse_proxies
from lanebus.handlers.serve.http_server import ConnectionGate, listen
from tests.support.agent.agents import until
from tests.support.page.serving import TOKEN, temporary_dir
from tests.support.page.sse_parser import parse
from tests.support.paths import ROOT
from tests.support.serve import (
    BEARER,
    Client,
    HttpBounds,
    UiBounds,
    api,
    client_at,
    connected,
    error_of,
    head_of,
    read_to_end,
)
from tests.support.servers.real import eventually

MESSAGES = "/api/sessions/s/messages"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MEGABYTES = 64
"""the memory that stalled clients may cost, however many they are"""

CLI = """
import sys, anyio
from pathlib import Path
from lanebus import Bus
from lanebus.handlers.cli.access import run
from lanebus.handlers.serve import serve
from lanebus.handlers.serve.bounds import HttpBounds, UiBounds

async def main():
    async with Bus.open(data_dir=Path(sys.argv[1])) as bus:
        seconds = float(sys.argv[2])
        bounds = UiBounds(send_seconds=seconds, http=HttpBounds(send_seconds=seconds))
        await serve(bus, port=0, token="start-token", on_ready=lambda url: print(url, flush=True), bounds=bounds)

run(main)
"""


@dataclass
class Attacked:
    process: Process
    base: str
    port: int
    big: Session
    small: Session

    @property
    def megabytes(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    @property
    def connections(self) -> int:
        """Connections to the server that a process still holds."""
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        rows = [line.split() for line in lines]
        return sum(row[1].endswith(f":{self.port:04X}") and row[3] in {"01", "08"} for row in rows)

    def stall(self, route: str, count: int) -> list[socket.socket]:
        """Return connections that have requested a route of the big session, and never read."""
        head = f"GET /api/sessions/big/{route} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
        return [self._stalled(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode()) for _ in range(count)]

    def _stalled(self, request: bytes) -> socket.socket:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.port))
        client.sendall(request)
        return client


@asynccontextmanager
async def attacked(send_seconds: float = 30.0) -> AsyncGenerator[Attacked]:
    """Serve a session of 24 entries of a megabyte, and a small session."""
    async with temporary_dir() as folder:
        command = [sys.executable, "-c", CLI, str(folder), str(send_seconds)]
        async with (
            await anyio.open_process(command, cwd=ROOT, stderr=None) as process,
            Bus.open(data_dir=folder) as bus,
        ):
            assert process.stdout is not None
            with anyio.fail_after(280):
                base = (await process.stdout.receive()).decode().partition("/#")[0]
            big, small = bus.session("big"), bus.session("small")
            for _ in range(24):
                await big.publish(ExtensionMessage.of("big", "x" * 1_000_000))
            await small.publish(ExtensionMessage.of("tick", 0))
            try:
                yield Attacked(process, base, int(base.rpartition(":")[2]), big, small)
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


@pytest.mark.full
@pytest.mark.parametrize(("count", "seconds"), [(20, 3.0), (200, 30.0)])
@pytest.mark.parametrize("route", ["events", "entries"])
async def test_clients_that_do_not_read_cost_little_memory_and_are_disconnected(
    route: str, count: int, seconds: float
) -> None:
    async with (
        attacked(seconds) as server,
        client_at(server.base) as client,
        client.sse("/api/sessions/small/events?lanes=all") as source,
    ):
        assert (await client.get("/api/sessions/big/entries?until=2")).status_code == 200
        before, most, events = server.megabytes, 0.0, aiter(source)
        stalled = server.stall(route, count)
        number = 0
        with anyio.fail_after(120):
            while server.connections > 2:  # those of the live client
                number += 1
                await server.small.publish(ExtensionMessage.of("tick", number))
                while True:  # the live client gets each entry meanwhile
                    event = await anext(events)
                    if event.event == "entry" and json.loads(event.data)["message"]["data"] == number:
                        break
                most = max(most, server.megabytes - before)
                assert most < MEGABYTES
                await anyio.sleep(0.1)
        assert number > 1
        assert (await client.get("/api/sessions/big/entries?until=2")).status_code == 200
        for each in stalled:
            each.close()


async def unchunked(stream: anyio.abc.ByteStream) -> AsyncGenerator[bytes]:
    """Yield the chunks of a response."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        received += await stream.receive()
    del received[: received.index(b"\r\n\r\n") + 4]
    while True:
        while b"\r\n" not in received:
            received += await stream.receive()
        start = received.index(b"\r\n") + 2
        end = start + int(received[: start - 2], 16)
        while len(received) < end + 2:
            received += await stream.receive()
        yield bytes(received[start:end])
        del received[: end + 2]


@pytest.mark.full
@pytest.mark.parametrize("path", ["/api/sessions/s/events?lanes=all", "/api/events?sessions=s&lanes=all"])
async def test_a_client_that_stalls_among_new_entries_gets_each_of_them_once(path: str) -> None:
    count, size, got = 250, 12_000, bytearray()  # more than the buffers of kernel, server and subscription take
    async with (
        api() as (bus, client),
        client.sse("/api/sessions/s/events?lanes=all") as live,
        connected(client, head_of(client, f"GET {path}")) as stalled,
        aclosing(unchunked(stalled)) as chunks,
    ):
        with anyio.fail_after(120):
            while b"event: caughtup" not in got:
                got += await anext(chunks)
            for number in range(count):
                await bus.session("s").publish(ExtensionMessage.of("big", f"{number} {'x' * size}"))
            seen, events = 0, aiter(live)
            while seen < count:  # the live client is not disturbed
                seen += (await anext(events)).event == "entry"
            while got.count(b"event: entry") < count or not got.endswith(b"\n\n"):
                got += await anext(chunks)
    found = [json.loads(event.data)["position"] for event in parse(bytes(got)) if event.name == "entry"]
    assert found == [*range(1, count + 1)]
    assert b"event: fellbehind" in got


@pytest.mark.full
async def test_sigterm_ends_a_server_whose_clients_do_not_read() -> None:
    async with attacked() as server:
        stalled = server.stall("events", 10) + server.stall("entries", 10)
        await eventually(lambda: server.connections >= 20)
        server.process.send_signal(signal.SIGTERM)
        with anyio.fail_after(5 * 4):  # 5 s, on a machine that is also busy with other tests
            await server.process.wait()
        for each in stalled:
            each.close()


async def test_a_connection_sends_what_is_written_at_once() -> None:
    accepted: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            server_side: socket.socket = transport.get_extra_info("socket")
            accepted.set_result(server_side.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with listen("127.0.0.1", 0) as listener, anyio.fail_after(60):
        async with (
            await asyncio.get_running_loop().create_server(Accepting, sock=listener),
            await anyio.connect_tcp(*listener.getsockname()),
        ):
            assert await accepted


async def test_a_client_that_sends_no_complete_header_is_disconnected_and_a_slow_body_is_refused() -> None:
    bounds = UiBounds(body_seconds=0.1, http=HttpBounds(header_seconds=0.2))
    async with api(bounds=bounds) as (_, client):
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /none HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"):
            async with connected(client, begun) as stream:
                await read_to_end(stream)
        head = head_of(client, f"POST {MESSAGES}", "Content-Type: application/json", "Content-Length: 20")
        async with connected(client, head + b"{") as stream:
            assert (await read_to_end(stream)).startswith(b"HTTP/1.1 408 ")


async def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(client: Client) -> None:
    head = head_of(client, f"POST {MESSAGES}", "Content-Length: 5", "Transfer-Encoding: chunked")
    async with connected(client, head + b"0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n") as stream:
        received = await read_to_end(stream)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("token", [TOKEN, "wrong-token"])
async def test_a_body_in_tiny_pieces_is_refused_and_one_in_large_ones_is_not(token: str) -> None:
    bounds = UiBounds(http=HttpBounds(pieces=10, piece_bytes=8))
    async with api(bounds=bounds) as (_, client):
        head = head_of(client, f"POST {MESSAGES}", "Content-Type: application/json", "Transfer-Encoding: chunked")
        for text, size, expected in (("x" * 100, 16, b"201"), ("x" * 8, 1, b"400"), ("x" * 1_000, 1, b"400")):
            said = json.dumps({"text": text}).encode()
            pieces = (said[at : at + size] for at in range(0, len(said), size))
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
            sent = head.replace(TOKEN.encode(), token.encode()).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            async with connected(client, sent + body) as stream:
                received = await read_to_end(stream)
            assert received[9:12] == (b"401" if expected == b"201" and token != TOKEN else expected)
            assert (b"tiny pieces" in received) == (expected == b"400")


async def test_connections_beyond_the_limit_are_refused_and_the_others_are_served() -> None:
    async with (
        api(bounds=UiBounds(http=HttpBounds(connections=2))) as (bus, client),
        client.sse("/api/sessions/s/events?lanes=all") as source,
        connected(client),
    ):
        assert source.response.status_code == 200
        async with connected(client) as third:
            assert (await read_to_end(third)).startswith(b"HTTP/1.1 503 ")
        await bus.session("s").publish(ExtensionMessage.of("tick"))
        async for event in source:
            if event.event == "entry":
                break


async def test_one_address_cannot_hold_all_connections_and_the_operator_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told() -> list[dict[str, object]]:
        return [vars(each) for each in caplog.records if vars(each).get("event") == "connections.refused"]

    async def is_served() -> bool:
        try:
            return (await client.get("/api/access")).status_code == 200
        except httpx2.TransportError:  # refused before it was sent
            return False

    bounds = UiBounds(http=HttpBounds(connections=20, address_connections=2, report_seconds=0.001))
    async with api(bounds=bounds) as (_, client), AsyncExitStack() as half:
        for _ in range(2):
            await half.enter_async_context(connected(client, b"GET / HTTP/1.1\r\nHost: x\r\n"))
        async with connected(client) as third:
            assert (await read_to_end(third)).startswith(b"HTTP/1.1 429 ")
        other = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx2.AsyncClient(transport=other, base_url=client.base_url, headers=BEARER, timeout=120) as far:
            assert (await far.get("/api/access")).status_code == 200
        await eventually(lambda: bool(told()))
        (line,) = told()
        assert (line["refused"], line["client"], line["levelname"]) == (1, "127.0.0.1", "WARNING")
        assert cast("int", line["client_open"]) >= 2
        await half.aclose()
        await until(is_served)


async def test_the_connections_of_a_trusted_proxy_are_those_of_many_clients() -> None:
    bounds = UiBounds(http=HttpBounds(address_connections=1))
    async with api(bounds=bounds, trusted_proxies=["127.0.0.0/8"]) as (_, client), connected(client), connected(client):
        assert (await client.get("/api/access")).status_code == 200


@pytest.mark.parametrize(
    ("client", "refused"),
    [
        (("2001:db8::1", 1), 429),
        (("2001:db8:0:1::1", 1), None),
        (("::ffff:192.0.2.1", 1), 429),
        (("192.0.2.2", 1), None),
        (("10.0.0.4", 1), None),
        (("::ffff:10.0.0.4", 1), None),
        (None, None),
    ],
)
def test_an_ipv6_network_counts_as_one_address_and_a_unix_socket_and_a_proxy_as_none(
    client: tuple[str, int] | None, refused: int | None
) -> None:
    counts = ConnectionCounts()
    gate = ConnectionGate(HttpBounds(address_connections=1), counts, parse_proxies(["10.0.0.4"]))
    entered = [gate.enter(each)[0] for each in (("2001:db8::ffff:2", 1), ("192.0.2.1", 1), ("10.0.0.4", 1), None)]
    key, answer = gate.enter(client)
    assert (answer and answer[0]) == refused
    for each in (*entered, key):
        gate.leave(each)
    assert (counts.open, counts.by_address) == (0, {})


async def test_a_head_that_is_too_large_is_refused_however_it_arrives_and_one_at_the_limit_is_not() -> None:
    async def status(lines: list[str], size: int) -> bytes:
        """Return the status of the answer to a request in pieces; b"" if the connection was reset before."""
        request = head_of(client, "GET /api/access", "Connection: close", *lines)
        async with connected(client) as stream:
            with suppress(anyio.BrokenResourceError):
                for at in range(0, len(request), size):
                    await stream.send(request[at : at + size])
            return (await read_to_end(stream))[9:12]

    bounds = UiBounds(http=HttpBounds(head_bytes=2_000, head_piece_bytes=100, headers=10))
    long = "a: " + "x" * 1_990
    async with api(bounds=bounds) as (_, client):
        for lines, expected in (
            (["a: " + "x" * 1_500], b"200"),
            (["a:"] * 6, b"200"),
            ([long], b"431"),
            ([long, long, long], b"431"),
            (["a:"] * 20, b"431"),
        ):
            assert await status(lines, 100_000) == expected
            # The server closes the connection while the client still sends, which may cost the client the answer.
            assert await status(lines, 500) in {expected, b""}
        assert await status(["a:"] * 40_000, 10_000) in {b"431", b""}
        assert error_of(await client.get("/api/access", headers=[("a", "")] * 20)) == (431, "head_too_large")
        # The body is no part of the head, also where it arrives with it.
        reply = await client.post(MESSAGES, json={"text": "\n" * 5_000 + "x"})
        assert reply.status_code == 201
