"""The socket that the page's server listens on."""

import asyncio
import socket

import anyio

from lanebus.handlers.serve.http_server import listen

__all__ = ()


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
