"""Real servers for tests, as processes of their own on a unix socket: killed, stopped, restarted and filled at will.

async def test_x(valkey: TestServer): ...      the embedded server's binary
async def test_y(server: TestServer): ...      once on Valkey, once on Debian's Redis 7.0, which may be missing
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from bus import Bus
from bus.launch import find_binary
from tests.bus.resp import Resp
from tests.needs import find

__all__ = ("RealServer", "eventually", "real_server", "shortly")


DEADLINE = 20.0
"""Seconds to wait for what must come at all; for a machine under load, not a claim about speed."""


class RealServer:
    """One server process and its directory. It keeps an append-only file with an fsync a write, and evicts nothing."""

    def __init__(self, binary: Path, directory: Path, *options: str) -> None:
        self.binary, self.directory, self.options = binary, directory, options
        self.socket = directory / "s"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", ""]
        settings += ["--appendonly", "yes", "--appendfsync", "always", "--logfile", "", "--daemonize", "no"]
        self._process = subprocess.Popen(
            [str(self.binary), *settings, *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while True:
            with suppress(OSError), self.talk() as say:
                if "\nloading:0" in str(say("INFO", "persistence")):  # not async_loading
                    return
            assert time.monotonic() < deadline, "the server did not start"
            assert self._process.poll() is None, "the server ended by itself"
            time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it is there and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def talk(self) -> Resp:
        """A connection of a foreign client."""
        return Resp(self.socket)

    def do(self, *arguments: str) -> object:
        """One command of a foreign client."""
        with self.talk() as say:
            return say(*arguments)

    def bus(self, namespace: str = "lanebus") -> AbstractAsyncContextManager[Bus]:
        """A bus on this server."""
        return Bus.open(self.url, namespace=namespace)


@contextmanager
def real_server(binary: Path, *options: str) -> Generator[RealServer, None, None]:
    """A running server; nothing of it is left afterwards, whatever the test did to it."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    server = RealServer(binary, directory, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


@pytest.fixture
def valkey() -> Iterator[RealServer]:
    """A server of the embedded one's binary."""
    with real_server(find_binary()) as server:
        yield server


@pytest.fixture(params=["valkey", pytest.param("redis", marks=pytest.mark.needs("redis-server"))])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """Every server that the contract holds for, in turn."""
    redis = find("redis-server")
    binary = find_binary() if request.param == "valkey" else redis
    assert binary is not None
    with real_server(binary) as started:
        yield started


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the deadline is for a machine under load, not a claim about speed."""
    with anyio.fail_after(DEADLINE):
        while not condition():  # noqa: ASYNC110  other processes do not set our events
            await anyio.sleep(0.01)


@asynccontextmanager
async def shortly(seconds: float = 20) -> AsyncGenerator[None, None]:
    """What must come to an end at all: a deadline for a machine under load, not a claim about speed."""
    with anyio.fail_after(seconds):
        yield
