"""A server of the MCP SDK as a process, with both stores of lanebus. Prints its port.

python -m tests.support.backends.mcp_process URL
"""

import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import uvicorn
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.server.mcpserver import Context, MCPServer

from lanebus import Bus
from lanebus.mcp import McpEventStore, McpSubscriptionBus
from tests.support.paths import ROOT

__all__ = ("ServerProcess", "server_process")


class ServerProcess:
    """A running server."""

    def __init__(self, process: anyio.abc.Process, url: str) -> None:
        self._process, self.url = process, url

    async def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended."""
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def server_process(url: str) -> AsyncGenerator[ServerProcess]:
    """Start a server on a bus. It is killed with the block."""
    command = [sys.executable, "-m", "tests.support.backends.mcp_process", url]
    async with await anyio.open_process(command, stderr=None, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            port = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 64)
            yield ServerProcess(process, f"http://127.0.0.1:{port.decode()}/mcp")
        finally:
            if process.returncode is None:
                process.kill()


async def serve(url: str) -> None:
    """Serve until killed."""
    async with Bus.open(url) as bus, McpSubscriptionBus(bus) as subscriptions:
        server = MCPServer("docs", subscriptions=subscriptions)

        @server.tool()
        async def change(ctx: Context, uri: str) -> str:  # pyright: ignore[reportUnusedFunction]  # the SDK calls it
            """Say that a resource has changed."""
            await ctx.notify_resource_updated(uri)
            return "told"

        @server.tool()
        async def count(ctx: Context, name: str, to: int) -> str:  # pyright: ignore[reportUnusedFunction]  # likewise
            """Send a notification for each number, and end the connection after the first."""
            for number in range(1, to + 1):
                await ctx.info(f"{name} {number}")  # pyright: ignore[reportDeprecated]  # resuming is of the same age
                if number == 1:
                    await ctx.close_sse_stream()
            return f"{name} counted"

        store = McpEventStore(bus)
        app = store.separated(server.streamable_http_app(event_store=store, retry_interval=0))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1])
