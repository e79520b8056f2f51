"""A state file is replaced as a whole, and counts only if no other user could have written it."""

import os
from pathlib import Path

import pytest

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned
from lanebus.bus.storage import StateFile

__all__ = ()


async def test_an_object_is_read_back_and_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "s.json"
    assert await StateFile(path).read() == {}
    await StateFile(path).write({"looks": 1})
    await StateFile(path).write({"looks": 2})
    assert await StateFile(path).read() == {"looks": 2}
    assert os.listdir(path.parent) == ["s.json"]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "[" * 4_000, " " * 5_000])
async def test_a_damaged_file_is_empty(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    assert await StateFile(path).read() == {}


async def test_a_file_or_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d" / "s.json"
    await StateFile(path).write({})
    path.chmod(0o666)
    with pytest.raises(DirectoryNotOwned, match="--state-dir"):
        await StateFile(path).read()
    path.chmod(0o600)
    path.parent.chmod(0o777)
    for call in (StateFile(path).read(), StateFile(path).write({})):
        with pytest.raises(DirectoryNotOwned, match="--state-dir"):
            await call


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryNotCreated, match="--state-dir"):
        await StateFile(tmp_path / "file" / "s.json").write({})


async def test_a_folder_keeps_only_the_newest_files(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / f"{number}.json"
        await StateFile(path, most_files=3).write({})
        os.utime(path, (number, number))
    (tmp_path / "other").touch()
    assert {*os.listdir(tmp_path)} == {"2.json", "3.json", "4.json", "other"}
