"""Why a connection could not be made: the error names the cause and the remedy."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from lanebus.bounds import ConnectionBounds
from lanebus.bus.errors import Unavailable, Unconnectable
from lanebus.bus.servers import Endpoint
from lanebus.bus.servers.calls import refusal_of
from tests.support.paths import ROOT

CERTIFICATE = ROOT / "tests/support/servers/localhost.pem"


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve, *, is_tls: bool = False) -> AsyncGenerator[int]:
    """Run a server of this function, which closes each connection afterwards. Yield its port."""
    answering = list[asyncio.Task[None] | None]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if is_tls else None
    if context is not None:
        context.load_cert_chain(CERTIFICATE)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.current_task())
        with suppress(ConnectionError):
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, answering))


def once(answer: bytes) -> Serve:
    """Return a function that answers one request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1000):
            writer.write(answer)

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del writer
    await reader.read()


async def full(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    del reader  # unread bytes: the client's kernel may drop what is told
    writer.write(b"-ERR max number of clients reached\r\n")


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a greeting without TLS alone, as servers that wait for the rest of the line."""
    while words := await reader.read(1000):
        if words.startswith(b"PING"):
            writer.write(b"-NOAUTH Authentication required.\r\n")


async def fault(url: str, bounds: ConnectionBounds | None = None) -> tuple[str, str]:
    with pytest.raises(Unavailable) as caught:
        await Endpoint(url, bounds or ConnectionBounds()).connect()
    return caught.value.fault, caught.value.remedy


async def test_refused_connection_is_named() -> None:
    found = await fault("redis://127.0.0.1:1")
    assert found == ("server at 127.0.0.1:1: Connection refused", "check its address, and that it runs")


QUOTED = b"-ERR unknown command 'AUTH', with args beginning with: 'u' 'hunter2'\r\n"


@pytest.mark.parametrize(
    ("scheme", "serve", "is_tls", "told", "remedy"),
    [
        ("redis://u:hunter2@", once(QUOTED), False, "unknown command 'AUTH'", ""),
        ("rediss://", once(b"+OK\r\n"), True, "its certificate was refused: self", "ssl_ca_certs"),
        ("rediss://", once(b"-ERR unknown command\r\n"), False, "it does not speak TLS on this port", "use redis://"),
        ("redis://", once(b"+OK\r\n"), True, "it closed the connection without an answer", "rediss://"),
        ("redis://", full, False, "it has too many clients", "maxclients"),
        ("redis://", once(b"HTTP/1.1 400 Bad\r\n\r\n"), False, "it is not a Redis or Valkey server", "check its host"),
    ],
    ids=["quoted password", "unknown certificate", "TLS to plain", "plain to TLS", "too many clients", "HTTP"],
)
async def test_the_cause_of_a_failed_connection_and_its_remedy_are_named(
    scheme: str, serve: Serve, *, is_tls: bool, told: str, remedy: str
) -> None:
    async with listening(serve, is_tls=is_tls) as port:
        text, advice = await fault(f"{scheme}localhost:{port}")
    assert told in text
    assert remedy in advice
    assert "hunter2" not in text


@pytest.mark.parametrize(("scheme", "is_named"), [("redis", False), ("rediss", True)])
async def test_silence_after_a_tls_greeting_names_the_url_without_tls(scheme: str, is_named: bool) -> None:
    async with listening(silent) as port:
        text, remedy = await fault(f"{scheme}://localhost:{port}", ConnectionBounds(connect_seconds=0.2))
    assert "no answer" in text
    assert ("use redis://" in remedy) is is_named


async def test_tls_to_a_silent_port_that_answers_without_it_needs_another_url() -> None:
    async with listening(plain) as port:
        with pytest.raises(Unconnectable, match="does not speak TLS on this port"):
            await Endpoint(f"rediss://localhost:{port}", ConnectionBounds(connect_seconds=0.2)).connect()


async def test_time_that_passes_in_a_busy_process_is_told_as_silence() -> None:
    connecting = asyncio.create_task(Endpoint("redis://localhost:1", ConnectionBounds(connect_seconds=0.02)).connect())
    await asyncio.sleep(0)  # it looks up the name in a thread
    time.sleep(0.1)  # noqa: ASYNC251  # so the loop sees the answer and the end of the time at once
    with pytest.raises(Unavailable, match="no answer"):
        await connecting


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("NOPERM User bob has no permissions to run the 'zadd' command", "zadd"),
        ("NOPERM this user has no permissions to run the 'config|get' command", "config|get"),
        ("NOPERM No permissions to access a key", ""),
        ("ERR ACL failure in script: User bob has no permissions to run the 'zadd' command script: on @x:1.", "zadd"),
        ("ERR The user executing the script can't run this command or subcommand script: 05", ""),
    ],
)
def test_missing_right_names_the_command(text: str, command: str) -> None:
    refusal = refusal_of(text)
    assert (refusal.code, refusal.command) == ("NOPERM", command)
    assert "run `lanebus acl`" in refusal.remedy  # a bare grant would turn a reader into a writer
