"""The embedded server: one private Valkey for a data directory, shared by all processes that open it.

`keeper.py` tells how it lives and ends, `launcher.py` starts it. Here is the opener's side: hold the shared lock, have
keeper and server running, and see to both again if they die while the directory is open.
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

if sys.platform != "win32":  # no file locks of this kind there, nor a server
    import fcntl

    from lanebus.bus.embedded import keeper

__all__ = ("EmbeddedServer", "ServerStatus", "default_data_dir", "open_server", "server_status", "stop_server")

log = logging.getLogger(__name__)

LONGEST_PAUSE = 5.0  # seconds between two restarts
STEADY = 10.0  # seconds a server must have lived for its end to count as the first one
PATIENCE = 2.0  # seconds a status waits for an answer


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server: where it answers and where it keeps its data."""

    socket: Path
    data_dir: Path


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of a directory's server. Asking starts nothing."""

    data_dir: Path
    state: Literal["stopped", "silent", "loading", "ready"]
    """silent: alive without an answer, as it has only just started, or hangs; loading: reading its log."""
    socket: Path
    """Where it answers, or would."""
    aof_bytes: int
    """Size of the log on disk."""
    pid: int | None = None
    keeper_pid: int | None = None
    version: str | None = None
    """Of Valkey, such as "9.1.2"; None unless it answers."""
    openers: tuple[int, ...] = ()
    """Process ids that have the directory open; one that opened it twice is there twice. Known only if it answers."""

    @property
    def running(self) -> bool:
        return self.state != "stopped"


@asynccontextmanager
async def open_server(data_dir: Path | None = None) -> AsyncGenerator[EmbeddedServer]:
    """Have the server of a data directory running while the block is open: started, or shared with other processes.

    It ends some milliseconds after the last block in any process is over, or the last process killed. If it dies before
    that, it is started again with pauses that grow to 5 s; who uses it sees its connections break meanwhile.

    Waits as long as it takes: a large log loads for seconds. May be cancelled at any time; nothing is left behind.

    Args:
        data_dir: made if missing; None is `default_data_dir()`.

    Raises:
        NoEmbeddedServer: there is no server for this platform, or it is not installed.
        SocketPathTooLong, DirectoryNotOwned: this directory cannot be used.
        ServerFailed: the server does not start; the text has its last words, such as "No space left on device".
    """
    binary = find_binary()
    place = DataDir.at(data_dir)
    place.prepare()
    openers = open_lock(place, keeper.OPENERS_LOCK)
    try:
        await _take_shared(openers)
        connection = await reach(place, binary)
        # A plain task, not a task group: the block's own errors would come out wrapped in a group, and the block might
        # not be left in the task it was entered in. It only ends by being cancelled.
        watch = asyncio.create_task(_watch(place, binary, connection), name="lanebus embedded server")
        try:
            yield EmbeddedServer(place.socket, place.path)
        finally:
            watch.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({watch})
                await anyio.aclose_forcefully(connection)  # the task may have ended before it began
                await _leave_to_keeper(place, binary)
            if not watch.cancelled() and (error := watch.exception()):
                raise error
    finally:
        fcntl.flock(openers, fcntl.LOCK_UN)  # by name: a child that the block forked may have a copy of the file
        os.close(openers)


async def server_status(data_dir: Path | None = None) -> ServerStatus:
    """Look at a directory's server.

    Raises:
        NoEmbeddedServer, SocketPathTooLong, DirectoryNotOwned: as `open_server`.
    """
    refuse_windows()
    place = DataDir.at(data_dir)
    if not place.check():
        return ServerStatus(place.path, "stopped", place.socket, 0)
    pid = keeper.lock_owner(str(place.path), keeper.SERVER_LOCK)
    keeper_pid = keeper.lock_owner(str(place.path), keeper.KEEPER_LOCK)
    with anyio.move_on_after(PATIENCE), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        async with await anyio.connect_unix(place.socket) as connection:
            info = dict(line.split(":", 1) for line in (await ask(connection, "INFO")).splitlines() if ":" in line)
            clients = (await ask(connection, "CLIENT LIST")).split()
        prefix = f"name={OPENER_NAME}"
        return ServerStatus(
            place.path,
            "loading" if info["loading"] == "1" else "ready",
            place.socket,
            place.aof_bytes(),
            pid=int(info["process_id"]),
            keeper_pid=keeper_pid,
            version=info.get("valkey_version"),
            openers=tuple(sorted(int(field.removeprefix(prefix)) for field in clients if field.startswith(prefix))),
        )
    return ServerStatus(
        place.path,
        "stopped" if pid is None else "silent",
        place.socket,
        place.aof_bytes(),
        pid=pid,
        keeper_pid=keeper_pid,
    )


async def stop_server(data_dir: Path | None = None) -> bool:
    """End a server that nobody uses, such as one whose keeper was killed on a system that spares its child.

    Returns:
        True if a server was there and is gone; False if none was.

    Raises:
        ServerInUse: somebody has the directory open. Theirs would be started again at once, so it is left alone.
        NoEmbeddedServer, SocketPathTooLong, DirectoryNotOwned: as `open_server`.
    """
    place = DataDir.at(data_dir)
    if not (await server_status(place.path)).running:
        return False
    openers = open_lock(place, keeper.OPENERS_LOCK)
    try:
        while not keeper.take(openers):
            if keeper.take(openers, fcntl.LOCK_SH):  # so it is not held by a keeper, which would be ending the server
                fcntl.flock(openers, fcntl.LOCK_UN)
                now = await server_status(place.path)
                if now.running:
                    raise ServerInUse(place.path, now.openers)
                return True
            await anyio.sleep(0.02)
        await run_sync(keeper.end_server, str(place.path))
    finally:
        os.close(openers)
    return True


async def _take_shared(openers: int) -> None:
    """Join the openers, after a keeper that is just ending the server is done.

    Asks again and again, as a thread that sleeps in the kernel's queue could not be cancelled.
    """
    backoff = Backoff(0.002, 0.05, factor=1.5)
    try:
        while not keeper.take(openers, fcntl.LOCK_SH):
            await backoff.wait()
    except OSError as error:
        raise ServerFailed(f"the data directory cannot be locked: {error.strerror}") from error


async def _watch(place: DataDir, binary: Path, connection: SocketStream) -> None:
    """Have the server running: an idle connection ends when it does, so nothing is asked in between."""
    backoff = Backoff(0.05, LONGEST_PAUSE)
    while True:
        since = monotonic()
        async with connection:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await connection.receive()
        log.warning("embedded server of %s has ended, starting it again", place.path)
        while True:
            # The first time at once; again and again, as on a full disk, ever more slowly.
            if monotonic() - since > STEADY:
                backoff.reset()
            else:
                await backoff.wait()
            try:
                connection = await reach(place, binary)
                break
            except ServerFailed as error:
                log.warning("%s", error)
                since = monotonic()


async def _leave_to_keeper(place: DataDir, binary: Path) -> None:
    """See that a keeper is there to end the server: where a keeper's death spares its server, there may be none."""
    if keeper.lock_owner(str(place.path), keeper.SERVER_LOCK) is not None:
        with suppress(ServerFailed):
            if (launch := await Launch.attempt(place, binary)) is not None:
                launch.close()
