"""A disk that fails or fills while the embedded server runs: the errors and the log name it, and the remedy."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from lanebus.bus import DataDir, open_server, server_status
from lanebus.bus.embedded.server import fault_of
from tests.support.paths import ROOT
from tests.support.servers.real import DEADLINE, shortly

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


@pytest.fixture
def data_dir() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="lanebus-")).resolve()
    (parent / "log").mkdir(mode=0o700)
    yield parent / "log"
    shutil.rmtree(parent)


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
    mounted = ["unshare", "-rm", "sh", "-c", MOUNTED, str(data_dir)]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a full disk is made with unshare -rm and a tmpfs, which this machine does not allow")
    told, lines = filled(data_dir, "disk", *mounted)
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
