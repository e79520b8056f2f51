"""Why a connection could not be made: the error names the cause and the remedy."""

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from lanebus.bounds import ConnectionBounds
from lanebus.bus.errors import Unavailable, Unconnectable
from lanebus.bus.servers import Endpoint
from lanebus.bus.servers.calls import refusal_of
from tests.support.paths import ROOT

__all__ = ()

CERTIFICATE = ROOT / "tests/support/servers/localhost.pem"


@asynccontextmanager
async def listening(answer: bytes, *, is_tls: bool) -> AsyncGenerator[int]:
    """Run a server that answers one request of each connection with these bytes, and closes. Yield its port."""
    answering = list[asyncio.Task[None] | None]()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if is_tls else None
    if context is not None:
        context.load_cert_chain(CERTIFICATE)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.current_task())
        with suppress(ConnectionError):
            if await reader.read(1000):
                writer.write(answer)
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*filter(None, answering))


async def fault(url: str) -> tuple[str, str]:
    with pytest.raises(Unavailable) as caught:
        await Endpoint(url).connect()
    return caught.value.fault, caught.value.remedy


async def test_refused_connection_is_named() -> None:
    text, remedy = await fault("redis://127.0.0.1:1")
    assert text == "server at 127.0.0.1:1: Connection refused"
    assert remedy == "check its address, and that it runs"


async def test_the_words_of_a_server_that_quotes_the_password_are_cut() -> None:
    answer = b"-ERR unknown command 'AUTH', with args beginning with: 'u' 'hunter2'\r\n"
    async with listening(answer, is_tls=False) as port:
        text, _ = await fault(f"redis://u:hunter2@127.0.0.1:{port}")
    assert text.endswith("unknown command 'AUTH'")


async def test_unknown_certificate_is_named() -> None:
    async with listening(b"+OK\r\n", is_tls=True) as port:
        text, remedy = await fault(f"rediss://localhost:{port}")
    assert "its certificate was refused: self" in text
    assert "ssl_ca_certs" in remedy


async def test_tls_to_a_port_without_tls_is_named() -> None:
    async with listening(b"-ERR unknown command\r\n", is_tls=False) as port:
        text, remedy = await fault(f"rediss://localhost:{port}")
    assert text.endswith("it does not speak TLS on this port")
    assert remedy == "use redis:// instead of rediss://"


async def test_plain_text_to_a_tls_port_is_named() -> None:
    async with listening(b"+OK\r\n", is_tls=True) as port:
        text, remedy = await fault(f"redis://localhost:{port}")
    assert text.endswith("it closed the connection without an answer")
    assert "rediss://" in remedy


async def test_a_server_that_has_too_many_clients_is_told_as_that() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader  # unread bytes: the client's kernel may drop what is told
        answering.append(asyncio.current_task())
        writer.write(b"-ERR max number of clients reached\r\n")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    answering = list[asyncio.Task[None] | None]()
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        text, remedy = await fault(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await asyncio.gather(*filter(None, answering))
    assert (text.endswith("it has too many clients"), "maxclients" in remedy) == (True, True)


async def test_another_protocol_is_named() -> None:
    async with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n", is_tls=False) as port:
        text, remedy = await fault(f"redis://localhost:{port}")
    assert "it is not a Redis or Valkey server" in text
    assert remedy == "check its host and port"


@pytest.mark.parametrize(("scheme", "is_named"), [("redis", False), ("rediss", True)])
async def test_silence_after_a_tls_greeting_names_the_url_without_tls(scheme: str, is_named: bool) -> None:
    ignoring = list[asyncio.Task[None] | None]()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ignoring.append(asyncio.current_task())
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match="no answer") as caught:
            await Endpoint(f"{scheme}://localhost:{port}", ConnectionBounds(connect_seconds=0.2)).connect()
        await asyncio.gather(*filter(None, ignoring))
    assert ("use redis://" in caught.value.remedy) is is_named


async def test_tls_to_a_silent_port_that_answers_without_it_needs_another_url() -> None:
    async def answer_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.current_task())
        with suppress(ConnectionError):
            while words := await reader.read(1000):  # as servers that wait for the rest of the line
                if words.startswith(b"PING"):
                    writer.write(b"-NOAUTH Authentication required.\r\n")
            writer.close()
            await writer.wait_closed()

    answering = list[asyncio.Task[None] | None]()
    async with await asyncio.start_server(answer_plainly, "127.0.0.1", 0) as server:
        url = f"rediss://localhost:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unconnectable, match="does not speak TLS on this port"):
            await Endpoint(url, ConnectionBounds(connect_seconds=0.2)).connect()
        await asyncio.gather(*filter(None, answering))


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
