"""The embedded server: one private Valkey for a data directory, shared by all processes that open it.

This is the opener's side: hold the shared lock, start keeper and server, and restart them if they die while the
directory is open. `keeper.py` describes the life of the server, and `launcher.py` starts it.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

import anyio
from anyio.abc import SocketStream
from anyio.to_thread import run_sync

from lanebus.bus.embedded.data_dir import DataDir, default_data_dir
from lanebus.bus.embedded.launcher import OPENER_NAME, Launch, ask, find_binary, open_lock, reach, refuse_windows
from lanebus.bus.errors import ServerFailed, ServerInUse
from lanebus.bus.servers.backoff import Backoff

if sys.platform != "win32":  # Windows has neither `flock` nor a server binary
    import fcntl

    from lanebus.bus.embedded import keeper

__all__ = ("EmbeddedServer", "ServerStatus", "default_data_dir", "open_server", "server_status", "stop_server")

log = logging.getLogger(__name__)

LONGEST_PAUSE = 5.0  # longest pause between two restarts, in seconds
STEADY = 10.0  # seconds that a server must have run for the next restart to come without a pause
PATIENCE = 2.0  # seconds that a status waits for an answer


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: its unix socket and its data directory."""

    socket: Path
    data_dir: Path


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """State of the server of a data directory."""

    data_dir: Path
    state: Literal["stopped", "silent", "loading", "ready"]
    """The server's state:

    - "stopped": it does not run
    - "silent": it runs and does not answer; it has just started, or hangs
    - "loading": it reads its files
    - "ready": it answers
    """
    socket: Path
    """Path of its unix socket, even if it does not run."""
    aof_bytes: int
    """Size of the append-only files, in bytes."""
    pid: int | None = None
    """Process id of the server; None if it does not run."""
    keeper_pid: int | None = None
    """Process id of its keeper; None if there is none."""
    version: str | None = None
    """Version of Valkey, such as "9.1.2"; None unless it answers."""
    openers: tuple[int, ...] = ()
    """Process ids that have the directory open, one entry for each time; empty unless it answers."""

    @property
    def running(self) -> bool:
        """The server runs, whether it answers or not."""
        return self.state != "stopped"


@asynccontextmanager
async def open_server(data_dir: Path | None = None) -> AsyncGenerator[EmbeddedServer]:
    """Run the server of a data directory while the block is open, or share the one that other processes run.

    The server ends some milliseconds after the last block in any process has ended or the last process was killed. If
    it dies before that, it is restarted, with pauses that grow to 5 s; meanwhile its connections break.

    Opening waits without limit, as a large log takes seconds to load. It may be cancelled at any time and then leaves
    nothing running.

    Args:
        data_dir: the directory, created if missing. None means `default_data_dir()`.

    Raises:
        NoEmbeddedServer: there is no server for this platform, or it is not installed.
        SocketPathTooLong: the path of the directory is too long for a socket in it.
        DirectoryNotOwned: the directory belongs to another user, or other users have access to it.
        ServerFailed: the server does not start; the text has its last output, such as "No space left on device".
    """
    binary = find_binary()
    directory = DataDir.at(data_dir)
    directory.prepare()
    openers = open_lock(directory, keeper.OPENERS_LOCK)
    try:
        await _take_shared(openers)
        connection = await reach(directory, binary)
        # Not a task group: it would wrap the block's errors in a group, and the block may be left in another task than
        # it was entered in.
        watch = asyncio.create_task(_watch(directory, binary, connection), name="lanebus embedded server")
        try:
            yield EmbeddedServer(directory.socket, directory.path)
        finally:
            watch.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({watch})
                await anyio.aclose_forcefully(connection)  # the task may have been cancelled before it started
                await _leave_to_keeper(directory, binary)
            if not watch.cancelled() and (error := watch.exception()):
                raise error
    finally:
        fcntl.flock(openers, fcntl.LOCK_UN)  # explicit: a child that the block forked may have a copy of the file
        os.close(openers)


async def server_status(data_dir: Path | None = None) -> ServerStatus:
    """Return the state of a directory's server. Start nothing.

    Args:
        data_dir: the directory. None means `default_data_dir()`.

    Raises:
        NoEmbeddedServer: as `open_server`.
        SocketPathTooLong: as `open_server`.
        DirectoryNotOwned: as `open_server`.
    """
    refuse_windows()
    directory = DataDir.at(data_dir)
    if not directory.check():
        return ServerStatus(directory.path, "stopped", directory.socket, 0)
    pid = keeper.lock_owner(str(directory.path), keeper.SERVER_LOCK)
    keeper_pid = keeper.lock_owner(str(directory.path), keeper.KEEPER_LOCK)
    with anyio.move_on_after(PATIENCE), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        async with await anyio.connect_unix(directory.socket) as connection:
            info = dict(line.split(":", 1) for line in (await ask(connection, "INFO")).splitlines() if ":" in line)
            clients = (await ask(connection, "CLIENT LIST")).split()
        prefix = f"name={OPENER_NAME}"
        return ServerStatus(
            directory.path,
            "loading" if info["loading"] == "1" else "ready",
            directory.socket,
            directory.aof_bytes(),
            pid=int(info["process_id"]),
            keeper_pid=keeper_pid,
            version=info.get("valkey_version"),
            openers=tuple(sorted(int(field.removeprefix(prefix)) for field in clients if field.startswith(prefix))),
        )
    return ServerStatus(
        directory.path,
        "stopped" if pid is None else "silent",
        directory.socket,
        directory.aof_bytes(),
        pid=pid,
        keeper_pid=keeper_pid,
    )


async def stop_server(data_dir: Path | None = None) -> bool:
    """End a server that no process uses, for example one that outlived its keeper.

    Args:
        data_dir: the directory. None means `default_data_dir()`.

    Returns:
        True if a server was ended; False if none ran.

    Raises:
        ServerInUse: a process has the directory open, and would restart the server at once. It keeps running.
        NoEmbeddedServer: as `open_server`.
        SocketPathTooLong: as `open_server`.
        DirectoryNotOwned: as `open_server`.
    """
    directory = DataDir.at(data_dir)
    if not (await server_status(directory.path)).running:
        return False
    openers = open_lock(directory, keeper.OPENERS_LOCK)
    try:
        while not keeper.take(openers):
            if keeper.take(openers, fcntl.LOCK_SH):  # openers hold the lock, not a keeper that is ending the server
                fcntl.flock(openers, fcntl.LOCK_UN)
                now = await server_status(directory.path)
                if now.running:
                    raise ServerInUse(directory.path, now.openers)
                return True
            await anyio.sleep(0.02)
        await run_sync(keeper.end_server, str(directory.path))
    finally:
        os.close(openers)
    return True


async def _take_shared(openers: int) -> None:
    """Take the openers' lock. Wait while a keeper that ends the server holds it.

    This polls, as a thread that waits in the kernel could not be cancelled.
    """
    backoff = Backoff(0.002, 0.05, factor=1.5)
    try:
        while not keeper.take(openers, fcntl.LOCK_SH):
            await backoff.wait()
    except OSError as error:
        raise ServerFailed(
            f"the data directory cannot be locked: {error.strerror}. Choose one on a local file system"
        ) from error


async def _watch(directory: DataDir, binary: Path, connection: SocketStream) -> None:
    """Restart the server whenever it ends, which an idle connection shows without polling."""
    backoff = Backoff(0.05, LONGEST_PAUSE)
    while True:
        since = monotonic()
        async with connection:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await connection.receive()
        log.warning("embedded server of %s has ended: restarting it", directory.path)
        while True:
            # Restart at once after a steady run; otherwise, for example on a full disk, with growing pauses.
            if monotonic() - since > STEADY:
                backoff.reset()
            else:
                await backoff.wait()
            try:
                connection = await reach(directory, binary)
                break
            except ServerFailed as error:
                log.warning("%s", error)
                since = monotonic()


async def _leave_to_keeper(directory: DataDir, binary: Path) -> None:
    """Make sure that a keeper runs to end the server: on some systems a server outlives its keeper."""
    if keeper.lock_owner(str(directory.path), keeper.SERVER_LOCK) is not None:
        with suppress(ServerFailed):
            if (launch := await Launch.attempt(directory, binary)) is not None:
                launch.close()
