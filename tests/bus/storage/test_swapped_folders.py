"""While another process swaps a folder for a link to a foreign folder, no foreign file is ever read or written."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from lanebus.bus.messages.content import read_file
from lanebus.bus.storage import Folder
from lanebus.errors import BusError, MediaRefused
from tests.support.suite.scale import SCALE

OWN, FOREIGN = b"own", b"foreign"
ROUNDS = 40_000 if SCALE >= 1 else 5_000
"""accesses while the folder is swapped; below the full count fewer than its share, as the swaps take the other core"""

_SWAPPER = """
import os, sys
place, link, away = sys.argv[1:]
os.write(1, b"ready")
swaps = 0
while os.path.exists(away + ".go"):
    for _ in range(50):
        os.rename(place, away)
        os.rename(link, place)
        os.rename(place, link)
        os.rename(away, place)
        swaps += 2
os.write(1, b" %d" % swaps)
"""


@contextmanager
def swapping(place: Path, foreign: Path) -> Generator[Callable[[], int]]:
    """Swap a folder for a link to a foreign one and back, as fast as it goes, in another process.

    The function that it gives ends this, and returns how often the folder was swapped.
    """
    link, away = place.parent.parent / "link", place.parent.parent / "away"
    link.symlink_to(foreign)
    go = away.with_name("away.go")
    go.touch()
    command = [sys.executable, "-c", _SWAPPER, *map(str, (place, link, away))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # this test's own script
        assert process.stdout is not None
        assert process.stdout.read(5) == b"ready"

        def stop() -> int:
            go.unlink(missing_ok=True)
            return int(process.communicate(timeout=60)[0])

        try:
            yield stop
        finally:
            go.unlink(missing_ok=True)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Return a folder `allowed/sub/deep` with a file of its own, and a foreign folder with a file of the same name."""
    allowed, foreign = tmp_path / "allowed", tmp_path / "foreign"
    for folder, data in ((allowed / "sub", OWN), (foreign, FOREIGN)):
        (folder / "deep").mkdir(parents=True, mode=0o700)
        (folder / "deep" / "file").write_bytes(data)
    return allowed, foreign


@pytest.mark.full
def test_a_file_within_a_folder_is_never_a_foreign_one_while_the_folder_is_swapped(folders: tuple[Path, Path]) -> None:
    allowed, foreign = folders
    reads, read = ROUNDS, dict[bytes, int]()
    with swapping(allowed / "sub", foreign) as stop:
        for _ in range(reads):
            try:
                data = read_file(allowed / "sub" / "deep" / "file", limit_bytes=100, within=allowed)
            except (MediaRefused, OSError):
                data = b""
            read[data] = read.get(data, 0) + 1
        swaps = stop()
    assert swaps > reads / 10
    assert read.get(OWN, 0) > 0
    assert FOREIGN not in read


@pytest.mark.full
async def test_a_store_never_touches_a_foreign_folder_while_one_of_its_folders_is_swapped(
    folders: tuple[Path, Path],
) -> None:
    directory, foreign = folders
    store, rounds = Folder(directory, "media directory"), ROUNDS
    read, names = dict[bytes | None, int](), set[str]()
    (foreign / "deep" / "foreign").touch()
    with swapping(directory / "sub", foreign) as stop:
        for number in range(rounds):
            with suppress(BusError):
                data = await store.get("sub/deep/file")
                read[data] = read.get(data, 0) + 1
            if number % 50 == 0:
                with suppress(BusError):
                    names |= set(await store.names("sub/deep"))
                with suppress(BusError):
                    await store.delete("sub/deep/foreign")
        swaps = stop()
    assert swaps > rounds / 10
    assert read.get(OWN, 0) > 0
    assert FOREIGN not in read
    assert "sub/deep/foreign" not in names
    assert {path.name for path in (foreign / "deep").iterdir()} == {"file", "foreign"}
