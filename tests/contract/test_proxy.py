"""The proxy that simulates network faults leaves no connection open, however early it ends."""

import asyncio
import gc
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.servers.proxy import proxy


@pytest.mark.parametrize("steps", range(8))
def test_proxy_closes_its_connections_at_any_step_of_the_loop(short_dir: Path, steps: int) -> None:
    """A connection left open warns when it is collected, and a warning fails the test."""

    async def connect_and_end() -> None:
        with ExitStack() as clients:
            async with proxy(short_dir / "server") as way:
                way.is_dark = True
                for _ in range(24):
                    client = clients.enter_context(socket.socket(socket.AF_UNIX))
                    client.connect(str(way.socket))
                for _ in range(steps):
                    await asyncio.sleep(0)

    asyncio.run(connect_and_end())
    gc.collect()
