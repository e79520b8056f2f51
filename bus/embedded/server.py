"""Open, check and stop the embedded server: a private Valkey for a data directory, shared by all its openers.

This is the opener's side: it holds the shared lock, starts keeper and server, and restarts both if they die while the
directory is open. `keeper.py` describes the life of the server, and `launcher.py` starts it.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Literal

import anyio
from anyio.abc import SocketStream

from lanebus.bus.embedded.data_dir import DataDir, default_data_dir
from lanebus.bus.embedded.launcher import (
    OPENER_NAME,
    Launch,
    ask,
    fault_of,
    find_binary,
    next_ending,
    open_lock,
    reach,
    refuse_windows,
)
from lanebus.bus.errors import ServerFailed, ServerInUse
from lanebus.bus.origin import drop_in_child
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.threads import run_in_thread

if sys.platform != "win32":  # Windows has neither `flock` nor a server binary
    import fcntl

    from lanebus.bus.embedded import keeper

__all__ = ("EmbeddedServer", "ServerStatus", "default_data_dir", "open_server", "server_status", "stop_server")

log = logging.getLogger(__name__)

LONGEST_PAUSE = 5.0  # longest pause between two restarts, in seconds
STEADY = 10.0  # a server that has run for this many seconds is restarted without a pause
PATIENCE = 2.0  # seconds that `server_status` waits for an answer


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: its unix socket and its data directory."""

    socket: Path
    data_dir: Path
    fault: Callable[[], ServerFailed | None] = field(compare=False)
    """Returns why the server ended by itself or does not start. None if it has run for a while since."""


class _LastFault:
    def __init__(self) -> None:
        self._error: ServerFailed | None = None
        self._at = 0.0

    def note(self, error: ServerFailed) -> None:
        self._error, self._at = error, monotonic()

    def recent(self) -> ServerFailed | None:
        return self._error if monotonic() - self._at < STEADY else None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """State of the server of a data directory."""

    data_dir: Path
    state: Literal["stopped", "silent", "loading", "ready"]
    """The server's state:

    - "stopped": it does not run
    - "silent": it runs but does not answer, because it has just started or hangs
    - "loading": it reads its files
    - "ready": it answers
    """
    socket: Path
    """Path of the server's unix socket, even if the server does not run."""
    aof_bytes: int
    """Size of the append-only files, in bytes."""
    pid: int | None = None
    """Process id of the server; None if the server does not run."""
    keeper_pid: int | None = None
    """Process id of the server's keeper; None if no keeper runs."""
    version: str | None = None
    """Version of Valkey, such as "9.1.2"; None if the server does not answer."""
    openers: tuple[int, ...] = ()
    """Ids of the processes that have the directory open. A process that has opened it twice is listed twice. Empty if
    the server does not answer."""

    @property
    def running(self) -> bool:
        """Whether the server runs, even if it does not answer."""
        return self.state != "stopped"


@asynccontextmanager
async def open_server(data_dir: Path | None = None) -> AsyncGenerator[EmbeddedServer]:
    """Run the server of a data directory while the block is open, or share the server that other processes run.

    The server ends some milliseconds after the last block in any process has ended or the last process was killed. If
    the server dies before that, it is restarted, with pauses that grow to 5 s. Connections to it break.

    Entering the block waits without limit, because a large log takes seconds to load. If this wait is cancelled,
    nothing is left running.

    Args:
        data_dir: the directory, created if missing. None means `default_data_dir()`.

    Raises:
        NoEmbeddedServer: there is no server for this platform, or it is not installed.
        SocketPathTooLong: the path of the directory is too long for a socket in it.
        DirectoryNotOwned: the directory belongs to another user, or other users have access to it.
        ServerFailed: the server does not start. The error text has the server's last output, such as "No space left on
            device".
    """
    binary = find_binary()
    directory = DataDir.at(data_dir)
    directory.prepare()
    lock_file = os.fdopen(open_lock(directory, keeper.OPENERS_LOCK), "rb", buffering=0)
    openers = lock_file.fileno()
    drop_in_child(lock_file, FileIO.fileno)  # the server would run on until the last child has ended
    try:
        await _take_shared(openers)
        connection = await reach(directory, binary)
        # Not a task group, which would wrap the block's errors in an exception group. A task group also does not allow
        # that the block is entered in one task and left in another.
        fault = _LastFault()
        watch = asyncio.create_task(_watch(directory, binary, connection, fault), name="lanebus embedded server")
        try:
            yield EmbeddedServer(directory.socket, directory.path, fault.recent)
        finally:
            watch.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({watch})
                await anyio.aclose_forcefully(connection)  # the task may have been cancelled before it started
                await _leave_to_keeper(directory, binary)
            if not watch.cancelled() and (error := watch.exception()):
                raise error
    finally:
        fcntl.flock(openers, fcntl.LOCK_UN)  # closing is not enough: another program may have a copy of the file
        lock_file.close()


async def server_status(data_dir: Path | None = None) -> ServerStatus:
    """Return the state of a data directory's server, without starting a server.

    Args:
        data_dir: the directory. None means `default_data_dir()`.

    Raises:
        NoEmbeddedServer: as for `open_server`.
        SocketPathTooLong: as for `open_server`.
        DirectoryNotOwned: as for `open_server`.
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
    """End a server that no process uses, for example a server that outlived its keeper.

    Args:
        data_dir: the directory. None means `default_data_dir()`.

    Returns:
        True if the server was ended, False if no server ran.

    Raises:
        ServerInUse: a process has the directory open, and would restart the server at once. The server keeps running.
        NoEmbeddedServer: as for `open_server`.
        SocketPathTooLong: as for `open_server`.
        DirectoryNotOwned: as for `open_server`.
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
        lock = open_lock(directory, keeper.SERVER_LOCK)
        try:
            await run_in_thread(partial(keeper.end_server, str(directory.path), lock))
        finally:
            os.close(lock)
    finally:
        os.close(openers)
    return True


async def _take_shared(openers: int) -> None:
    """Take the openers' lock shared. Wait while a keeper that ends the server holds the lock.

    The wait polls, because a thread that waits in the kernel could not be cancelled.
    """
    backoff = Backoff(0.002, 0.05, factor=1.5)
    try:
        while not keeper.take(openers, fcntl.LOCK_SH):
            await backoff.wait()
    except OSError as error:
        raise ServerFailed(
            f"the data directory cannot be locked: {error.strerror}", "choose one on a local file system"
        ) from error


async def _watch(directory: DataDir, binary: Path, connection: SocketStream, fault: _LastFault) -> None:
    """Restart the server whenever it ends. The end of an idle connection shows the server's end without polling.

    Args:
        directory: the data directory.
        binary: the server's program.
        connection: a connection to the running server.
        fault: gets why the server ended or did not start.
    """
    backoff = Backoff(0.05, LONGEST_PAUSE)
    while True:
        since, before = monotonic(), keeper.last_ending(str(directory.path))
        async with connection:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await connection.receive()
        error = fault_of(directory, await next_ending(directory, before, seconds=PATIENCE))
        if error is None:
            log.warning("embedded server of %s has ended: restarting it", directory.path)
        else:
            fault.note(error)
            log.warning("embedded server has ended, restarting it: %s: %s", error.reason, error.remedy)
        while True:
            # After a steady run, restart at once. Otherwise, for example on a full disk, restart with growing pauses.
            if monotonic() - since > STEADY:
                backoff.reset()
            else:
                await backoff.wait()
            try:
                connection = await reach(directory, binary)
                break
            except ServerFailed as refused:
                fault.note(refused)
                log.warning("%s", refused)
                since = monotonic()


async def _leave_to_keeper(directory: DataDir, binary: Path) -> None:
    """If the server runs without a keeper, start a keeper to end it. On some systems a server outlives its keeper."""
    if keeper.lock_owner(str(directory.path), keeper.SERVER_LOCK) is not None:
        with suppress(ServerFailed):
            if (launch := await Launch.attempt(directory, binary)) is not None:
                launch.close()
