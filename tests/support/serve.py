"""The HTTP API of a page: a bus with a client, over a socket or within this process, and connections that send bytes.

async with api(bounds=UiBounds(sessions=1)) as (bus, client): ...

The fixtures `bus` and `client` of the tests of `serve` are the same with all defaults.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Concatenate, ParamSpec

import anyio
import httpx2
from anyio.abc import ByteStream, SocketStream
from starlette.types import ASGIApp

from lanebus import Bus
from lanebus.handlers.serve import Principal, TokenFiles, new_key, sign_token
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, HttpBounds, McpServerBounds, UiBounds
from lanebus.handlers.serve.guard import local_hosts
from lanebus.handlers.serve.server import create_app
from tests.support.agent.agents import fresh_bus
from tests.support.page.serving import TOKEN, Served, serving

__all__ = (
    "BEARER",
    "DEFAULT_UI_BOUNDS",
    "HOST",
    "TOKEN",
    "Client",
    "HttpBounds",
    "McpServerBounds",
    "UiBounds",
    "api",
    "client_at",
    "connected",
    "create_app",
    "error_of",
    "head_of",
    "local_hosts",
    "read_to_end",
    "signed",
    "visitor",
)

P = ParamSpec("P")
Client = httpx2.AsyncClient
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HOST = "127.0.0.1:8420"


def _with_client(
    serve: Callable[Concatenate[Bus, P], AbstractAsyncContextManager[Served]],
) -> Callable[P, AbstractAsyncContextManager[tuple[Bus, Client]]]:
    @asynccontextmanager
    async def opened(*args: P.args, **options: P.kwargs) -> AsyncGenerator[tuple[Bus, Client]]:
        async with fresh_bus() as bus, serve(bus, *args, **options) as served, client_at(served.base) as client:
            yield bus, client

    return opened


api = _with_client(serving)
"""Serve a bus of its own with the options of `serving`. Yield the bus, and a client with the token."""


def client_at(url: httpx2.URL | str, token: str | None = TOKEN, **headers: str) -> Client:
    """Return a client with a token, or without one, that sends these headers in addition to its own."""
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=url, headers={**sent, **headers}, timeout=120)


def visitor(app: ASGIApp, *, address: str = "127.0.0.1", url: str = f"http://{HOST}", **headers: str) -> Client:
    """Return a client at an address that calls an application without a server, for responses that end."""
    transport = httpx2.ASGITransport(app=app, client=(address, 4711), raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=url, headers=headers)


def signed(folder: Path, principal: Principal) -> tuple[TokenFiles, str]:
    """Write a new key into a folder. Return the files of a server, and a token for a principal."""
    file = folder / "key"
    file.write_text(new_key())
    return TokenFiles(key=file), sign_token(principal, file.read_text(), seconds=3600)[0]


def error_of(reply: httpx2.Response) -> tuple[int, str]:
    """Return the status and the code of a problem."""
    problem: dict[str, str] = reply.json()
    return reply.status_code, problem["error"]


def head_of(client: Client, request: str, *headers: str) -> bytes:
    """Return the head of a request with the client's token, such as `GET /api/access`."""
    host = f"Host: {client.base_url.host}:{client.base_url.port}"
    return "\r\n".join((f"{request} HTTP/1.1", host, f"Authorization: Bearer {TOKEN}", *headers, "", "")).encode()


@asynccontextmanager
async def connected(client: Client, sent: bytes = b"") -> AsyncGenerator[SocketStream]:
    """Connect to the server of a client, and send bytes. The connection may be cut by the server."""
    stream = await anyio.connect_tcp("127.0.0.1", client.base_url.port or 80)
    if sent:
        await stream.send(sent)
    try:
        yield stream
    finally:
        with suppress(anyio.BrokenResourceError):
            await stream.aclose()


async def read_to_end(stream: ByteStream) -> bytes:
    """Return all that the server sends until it closes the connection."""
    received = b""
    with anyio.fail_after(120), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            received += await stream.receive()
    return received
