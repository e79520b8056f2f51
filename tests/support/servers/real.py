"""Real servers on a unix socket, as separate processes that tests kill, stop, restart and fill.

async def test_x(valkey: RealServer): ...      the embedded server's binary
async def test_y(process: RealServer): ...     once on Valkey, once on Debian's Redis 7.0, which may be missing

These two belong to one test, which may harm them. For the servers that tests share see tests/support/servers/kinds.py.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import anyio
import pytest
from anyio.abc import TaskGroup

from lanebus import Bounds, Bus
from lanebus.bus.embedded.server import find_binary
from lanebus.bus.servers import acl_users
from tests.support.servers.resp import Reply, Resp
from tests.support.suite.needs import find

DEADLINE = 120.0
"""seconds to wait for an event that must happen; generous, for a slow machine"""


# Ends a server when the tests are killed, even before the server set this up; it survives exec. Linux only.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_TIED_BY_SETPRIV = ("--pdeathsig", "KILL", "sh", "-c", 'test "$PPID" = "$0" && exec "$@"')
"""The same in 3 ms of CPU instead of 16, several hundred times a run. It needs util-linux, which some systems lack."""


@cache
def _tied() -> list[str]:
    """Return the command that ties another one to its parent. Append the parent's id and the other command."""
    if setpriv := shutil.which("setpriv"):
        trial = subprocess.run([setpriv, *_TIED_BY_SETPRIV, str(os.getpid()), "true"], capture_output=True, check=False)
        if trial.returncode == 0:
            return [setpriv, *_TIED_BY_SETPRIV]
    return [sys.executable, "-I", "-S", "-c", _TIED]


def spawn(*command: str) -> subprocess.Popen[bytes]:
    """Start a process that ends with this one, however this one ends."""
    tied = [*_tied(), str(os.getpid())] if sys.platform == "linux" else []
    return subprocess.Popen([*tied, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Talk(Protocol):
    """A foreign client's connection to a server."""

    def __call__(self, *arguments: str) -> Reply:
        """Send one command and wait for its reply."""
        ...

    def send(self, *arguments: str) -> None:
        """Send one command and ignore its reply."""
        ...


class AnyServer(Protocol):
    """What the bus runs on: one server, or several that act as one."""

    bounds: Bounds | None
    """bounds of the buses that `bus` opens; None means the defaults. A shared server loses them with its next test"""

    @property
    def url(self) -> str:
        """The URL for `Bus.open`."""
        ...

    def bus(self, namespace: str = "lanebus", *, bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """Open a bus on it."""
        ...

    def do(self, *arguments: str) -> Reply:
        """Send one command as a foreign client, to the server of its key. One without a key goes to all servers."""
        ...

    def talk(self) -> AbstractContextManager[Talk]:
        """Connect as a foreign client."""
        ...


class RealServer:
    """One server process and its directory. It writes an append-only file, fsyncs each write, and evicts nothing."""

    def __init__(self, binary: Path, directory: Path, *options: str) -> None:
        self.binary, self.directory, self.options = binary, directory, options
        self.socket = directory / "s"
        self._process: subprocess.Popen[bytes] | None = None
        self.bounds: Bounds | None = None
        self.is_restricted = False
        """whether `bus` logs in as the user of `lanebus acl` that has only the rights that a bus needs"""
        self._users: set[str] = set()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def login(self, namespace: str) -> str:
        """Create the user for a bus in a namespace, if the server is restricted. Return the `user:password@` of a URL.

        Redis shows its settings too, or the bus would warn that it cannot see whether the server loads a torn file.
        """
        if not self.is_restricted or not namespace:
            return ""
        user = acl_users(namespace)[1]
        if user.name not in self._users:
            more = ["+config|get"] if self.binary.name == "redis-server" else []
            self.do("ACL", "SETUSER", user.name, *user.rules, *more, ">secret")
            self._users.add(user.name)
        return f"{quote(user.name, safe='')}:secret@"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, is_waiting: bool = True) -> None:
        """Start it. Wait until it answers, unless `is_waiting` is False."""
        settings = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory), "--save", ""]
        settings += ["--appendonly", "yes", "--appendfsync", "always", "--logfile", "", "--daemonize", "no"]
        if self.binary.name == "redis-server":
            # Otherwise it may lose acknowledged entries, and the bus warns of that.
            settings += ["--aof-load-truncated", "no"]
        command = [str(self.binary), *settings, *self.options]
        self._process = spawn(*command)
        deadline, is_repaired = time.monotonic() + DEADLINE, False
        while is_waiting:
            with suppress(OSError), self.talk() as say:
                if "\nloading:0" in str(say("INFO", "persistence")):  # not async_loading
                    return
            assert time.monotonic() < deadline, "the server did not start"
            if self._process.poll() is not None:
                assert not is_repaired, "the server ended by itself"
                is_repaired = self._repair()
                self._process = spawn(*command)
            time.sleep(0.005)

    def _repair(self) -> bool:
        """Cut off the torn end of the append-only file, which a SIGKILL in the middle of a write leaves. Return True.

        No append in the torn end was acknowledged. Redis with `aof-load-truncated no` does not start before.
        """
        manifests = [*self.directory.glob("appendonlydir/*.manifest")]
        assert self.binary.name == "redis-server", "the server ended by itself"
        assert len(manifests) == 1, "the server ended by itself"
        subprocess.run(
            ["redis-check-aof", "--fix", str(manifests[0])], input=b"y\n", check=True, stdout=subprocess.DEVNULL
        )
        return True

    def kill(self) -> None:
        """Send SIGKILL, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Send SIGTERM, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP: it exists and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def talk(self) -> Resp:
        """Connect as a foreign client."""
        return Resp(self.socket)

    def do(self, *arguments: str) -> Reply:
        """Send one command as a foreign client."""
        with self.talk() as say:
            return say(*arguments)

    def bus(self, namespace: str = "lanebus", *, bounds: Bounds | None = None) -> AbstractAsyncContextManager[Bus]:
        """Open a bus on this server."""
        url = self.url.replace("://", f"://{self.login(namespace)}")
        return Bus.open(url, namespace=namespace, bounds=bounds or self.bounds)


@contextmanager
def real_server(binary: Path, *options: str) -> Generator[RealServer, None, None]:
    """Yield a running server. Afterwards nothing of it is left, whatever the test did to it."""
    directory = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    server = RealServer(binary, directory, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory)


@contextmanager
def copied(server: RealServer) -> Generator[Callable[[], None], None, None]:
    """Copy the server's file. Yield a function that kills the server, restores the copy and starts it."""
    server.kill()
    copy = server.directory.with_name(server.directory.name + "-copy")
    shutil.copytree(server.directory, copy, ignore=shutil.ignore_patterns("s", "proxy"))
    server.start()

    def restore() -> None:
        server.kill()
        shutil.rmtree(server.directory / "appendonlydir")
        shutil.copytree(copy / "appendonlydir", server.directory / "appendonlydir")
        server.start()

    try:
        yield restore
    finally:
        shutil.rmtree(copy)


def empty(server: RealServer) -> None:
    """Kill a server, remove its file and start it, as after the loss of a disk."""
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


@pytest.fixture
def valkey() -> Iterator[RealServer]:
    """A server of the embedded server's binary, for this test alone."""
    with real_server(find_binary()) as server:
        yield server


def one_server(kind: str, *options: str) -> AbstractContextManager[RealServer]:
    """Start a server of one of the `KINDS`, with additional command-line options."""
    binary = find_binary() if kind == "valkey" else find("redis-server")
    assert binary is not None
    return real_server(binary, *options)


KINDS = ["valkey", pytest.param("redis", marks=[pytest.mark.needs("redis-server"), pytest.mark.full])]


@pytest.fixture(params=KINDS)
def process(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """One server of each kind, in turn, for this test alone."""
    with one_server(request.param) as started:
        yield started


@asynccontextmanager
async def background() -> AsyncGenerator[TaskGroup, None]:
    """A task group whose tasks are cancelled at the end of the block."""
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


async def eventually(condition: Callable[[], bool], seconds: float | None = None) -> None:
    """Poll a condition in an event loop; use `wait_until` outside of one."""
    with anyio.fail_after(DEADLINE if seconds is None else seconds):
        while not condition():  # noqa: ASYNC110  other processes do not set our events
            await anyio.sleep(0.01)


def blocked(server: AnyServer) -> int:
    """Return the number of clients that wait for an entry of a stream, on all nodes."""
    reply = server.do("CLIENT", "LIST")
    lists = reply if isinstance(reply, list) else [reply]
    return sum(line.partition(" flags=")[2].startswith("b") for text in lists for line in str(text).splitlines())


def refused(server: AnyServer, code: str) -> int:
    """Return the number of commands refused with an error code since the server started, on all nodes."""
    reply = server.do("INFO", "errorstats")
    lists = reply if isinstance(reply, list) else [reply]
    return sum(int(found) for text in lists for found in re.findall(rf"errorstat_{code}:count=(\d+)", str(text)))


@asynccontextmanager
async def shortly(seconds: float | None = None) -> AsyncGenerator[None, None]:
    """Fail if the block takes longer than `seconds`, by default `DEADLINE`."""
    with anyio.fail_after(DEADLINE if seconds is None else seconds):
        yield
