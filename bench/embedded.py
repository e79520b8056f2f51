"""An embedded server of its own for one measurement. It is on disk before it acknowledges."""

import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from lanebus.bus import open_server, stop_server

__all__ = ("opened_server",)


@asynccontextmanager
async def opened_server() -> AsyncGenerator[tuple[str, Redis]]:
    """Yield the URL of an embedded server of its own, and a client."""
    data_dir = Path(tempfile.mkdtemp(prefix="lanebus-bench-"))
    try:
        async with open_server(data_dir) as server, Redis(unix_socket_path=str(server.socket)) as client:
            yield f"unix://{server.socket}", client
    finally:
        await stop_server(data_dir)  # before the directory is deleted: a running server writes into it
        shutil.rmtree(data_dir)
