"""Serve the page for a test: a bus on its own embedded server, and uvicorn on a free port."""

import os
import re
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import httpx2
from anyio.abc import Process

from lanebus import Bus
from lanebus.bus import stop_server
from lanebus.bus.embedded.keeper import KEEPER_LOCK, lock_owner
from lanebus.handlers.projections import Projection
from lanebus.handlers.serve import Authorize, HostedApp, Identify, TokenFiles, serve
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from tests.support.servers.real import eventually

TOKEN = "start-token"


@dataclass(frozen=True)
class Served:
    bus: Bus
    url: str
    """with the token"""
    base: str
    """without the token, with the base path"""
    port: int


@asynccontextmanager
async def temporary_dir() -> AsyncGenerator[Path]:
    """Yield a data directory with a path short enough for a socket. Its server ends before the directory is removed."""
    with TemporaryDirectory(prefix="lanebus-") as folder:
        try:
            yield Path(folder)
        finally:
            with anyio.fail_after(60, shield=True):
                await stop_server(Path(folder))
                await eventually(lambda: lock_owner(folder, KEEPER_LOCK) is None)


@asynccontextmanager
async def temporary_bus() -> AsyncGenerator[Bus]:
    """Yield a bus on its own embedded server, which ends with the block."""
    async with temporary_dir() as folder, Bus.open(data_dir=folder) as bus:
        yield bus


@asynccontextmanager
async def serving(
    bus: Bus,
    *,
    port: int = 0,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    trusted_proxies: Iterable[str] = (),
    base_path: str = "",
    token: str | None = TOKEN,
    reader_token: str | None = None,
    token_files: TokenFiles | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
    projections: Iterable[Projection[object]] = (),
    uploads: Path | None = None,
    hosted: Iterable[HostedApp] = (),
    allowed_media_urls: Iterable[str] = (),
) -> AsyncGenerator[Served]:
    """Serve the page of a bus during the block. Leaving the block waits until the page has ended."""
    ready = anyio.Event()
    urls: list[str] = []

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await serve(
                bus,
                port=port,
                token=token,
                reader_token=reader_token,
                token_files=token_files,
                identify=identify,
                authorize=authorize,
                allowed_hosts=allowed_hosts,
                allowed_origins=allowed_origins,
                trusted_proxies=trusted_proxies,
                base_path=base_path,
                on_ready=on_ready,
                bounds=bounds,
                projections=projections,
                uploads=uploads,
                hosted=hosted,
                allowed_media_urls=allowed_media_urls,
            )

        tasks.start_soon(run)
        with anyio.fail_after(120):
            await ready.wait()
        base = urls[0].partition("#")[0].removesuffix("/")
        try:
            yield Served(bus, urls[0], base, int(base.rpartition(":")[2].partition("/")[0]))
        finally:
            tasks.cancel_scope.cancel()


def client_of(served: Served) -> httpx2.AsyncClient:
    """Return a client with the token."""
    return httpx2.AsyncClient(base_url=served.base, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)


@asynccontextmanager
async def served_by_command(folder: Path, port: int = 0) -> AsyncGenerator[tuple[str, Process]]:
    """Run `lanebus serve` on a data directory. Yield its address and its process."""
    command = [str(Path(sys.prefix) / "bin/lanebus"), "serve", "--port", str(port), "--data-dir", str(folder)]
    environment = {**os.environ, "LANEBUS_TOKEN": TOKEN}
    async with await anyio.open_process(command, env=environment, stderr=None) as process:
        try:
            assert process.stdout is not None
            text = ""
            with anyio.fail_after(120):
                while (found := re.search(r"http://[\w.:]+(?=/)", text)) is None:
                    text += (await process.stdout.receive()).decode()
            yield found[0], process
        finally:
            if process.returncode is None:
                process.kill()
