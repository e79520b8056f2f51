"""A file that a program finds by itself counts only if no other user could have written or replaced it."""

import grp
import itertools
import os
import pwd
import stat
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned
from lanebus.bus.storage import StateFile, open_owned

FOREIGN = 4711
"""the number of a user that no machine has"""

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file of ours in a folder of ours, two folders below another one."""
    path = tmp_path / "a" / "b" / "lanebus.toml"
    path.parent.mkdir(parents=True)
    path.write_text("own")
    path.chmod(0o644)
    return path


def content(path: Path) -> str:
    """Return the text of a file that no other user could have written."""
    with os.fdopen(open_owned(path, "settings file", "name it"), "r") as stream:
        return stream.read()


def refusal(path: Path) -> str:
    with pytest.raises(DirectoryNotOwned) as caught:
        content(path)
    assert caught.value.path == path
    assert caught.value.remedy.endswith("or name it")
    assert str(caught.value).startswith(f"settings file {path}: ")
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755])
def test_a_file_that_only_its_owner_can_write_is_opened(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert content(file) == "own"


@pytest.mark.parametrize(("part", "mode"), [("file", 0o646), ("file", 0o602), ("folder", 0o777), ("folder", 0o702)])
def test_a_file_or_a_folder_on_the_way_that_all_can_write_is_refused(file: Path, part: str, mode: int) -> None:
    place = file if part == "file" else file.parent.parent
    place.chmod(mode)
    assert f"{place} has mode {mode:04o}" in refusal(file) or part == "file"
    assert f"has mode {mode:04o}, so other users may write to it" in refusal(file)
    assert f"chmod go-w {place}" in refusal(file)


def test_in_a_sticky_folder_ours_is_opened(file: Path) -> None:
    file.parent.parent.chmod(0o1777)
    file.parent.chmod(0o1777)
    assert content(file) == "own"


def test_a_sticky_folder_itself_is_refused(file: Path) -> None:
    os.close(open_owned(file.parent, "folder", "", is_folder=True))
    file.parent.chmod(0o1777)
    with pytest.raises(DirectoryNotOwned, match="has mode 1777"):
        open_owned(file.parent, "folder", "", is_folder=True)


@AS_ROOT
@pytest.mark.parametrize("part", ["a/b/lanebus.toml", "a/b", "a"])
def test_what_belongs_to_another_user_is_refused(file: Path, tmp_path: Path, part: str) -> None:
    place = tmp_path / part
    file.parent.parent.chmod(0o1777)  # where ours is safe and theirs is not
    os.chown(place, FOREIGN, -1)
    assert f"belongs to user {FOREIGN}, this is user 0" in refusal(file)
    assert "`chown`" in refusal(file)


def test_a_link_is_followed_and_its_way_is_judged(file: Path, tmp_path: Path) -> None:
    for target in (file, Path("a/b/lanebus.toml"), Path("a/../a/./b/lanebus.toml"), Path("../") / tmp_path.name / "l0"):
        link = tmp_path / f"l{len([*tmp_path.glob('l*')])}"
        link.symlink_to(target)
        assert content(link) == "own"
    (tmp_path / "folder").symlink_to(file.parent)
    assert content(tmp_path / "folder" / file.name) == "own"
    file.parent.parent.chmod(0o777)
    assert f"{file.parent.parent} has mode 0777" in refusal(tmp_path / "folder" / file.name)


@AS_ROOT
def test_a_link_of_another_user_is_refused(file: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    link = tmp_path / "link"
    link.symlink_to(file)
    os.chown(link, FOREIGN, -1, follow_symlinks=False)
    assert f"belongs to user {FOREIGN}" in refusal(link)


def test_a_second_name_in_a_shared_folder_is_refused(file: Path) -> None:
    os.link(file, file.with_name("other"))
    assert content(file) == "own"  # nobody else could have made the name
    file.parent.chmod(0o1777)
    assert "has several names" in refusal(file)


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket"])
def test_what_is_no_regular_file_is_refused_without_waiting(file: Path, kind: str) -> None:
    file.unlink()
    if kind == "folder":
        file.mkdir()
    else:
        os.mknod(file, {"pipe": 0o010600, "socket": 0o140600}[kind])
    assert "is no regular file" in refusal(file)


def test_a_missing_file_and_a_loop_of_links_are_errors_of_the_system(file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        content(file.with_name("none"))
    file.with_name("loop").symlink_to("loop")
    with pytest.raises(OSError, match="links"):
        content(file.with_name("loop"))


class Group(NamedTuple):
    """A group: its name, its members, and the users whose primary group it is. The first of these is this user."""

    name: str
    members: tuple[str, ...]
    users: tuple[str, ...]


OWN = (Group("ann", (), ("ann",)), Group("ann", ("ann",), ("ann",)))
SHARED = (Group("staff", (), ("ann",)), Group("ann", ("ann", "bob"), ("ann",)), Group("ann", (), ("ann", "bob")))


def set_group(file: Path, monkeypatch: pytest.MonkeyPatch, group: Group) -> None:
    """Make the group of a file one that has these members, for this process."""
    gid = file.stat().st_gid
    users = [pwd.struct_passwd((each, "x", gid + 1 + at, gid, "", "/", "/")) for at, each in enumerate(group.users)]
    found = grp.struct_group((group.name, "x", gid, [*group.members]))
    monkeypatch.setattr(pwd, "getpwuid", {os.geteuid(): users[0]}.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    monkeypatch.setattr(grp, "getgrgid", {gid: found}.__getitem__)


@pytest.mark.parametrize("group", [*OWN, *SHARED])
def test_a_group_may_write_only_if_it_is_the_user_s_own(
    file: Path, monkeypatch: pytest.MonkeyPatch, group: Group
) -> None:
    set_group(file, monkeypatch, group)
    file.chmod(0o664)
    if group in OWN:
        assert content(file) == "own"
    else:
        assert "has mode 0664" in refusal(file)


@pytest.mark.parametrize("place", [".", ".."])
def test_a_user_of_an_access_control_list_is_another_one_that_may_write(
    file: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    named = file if place == "." else file.parent
    set_group(file, monkeypatch, OWN[0])
    named.chmod(0o775)
    assert content(file) == "own"
    # The owner, user 4,000,000, the group, the mask and the others, with their rights. The mode shows the mask.
    entries = ((1, 7, -1), (2, 6, 4_000_000), (4, 5, -1), (16, 7, -1), (32, 5, -1))
    try:
        os.setxattr(named, "system.posix_acl_access", struct.pack("<i" + "HHi" * 5, 2, *itertools.chain(*entries)))
    except OSError as error:
        pytest.skip(f"the file system of {named} has no access control lists: {error}")
    assert stat.S_IMODE(named.stat().st_mode) == 0o775
    assert "access control list" in refusal(file)


def test_the_group_of_a_user_that_has_no_name_is_not_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    file.chmod(0o660)
    assert "has mode 0660" in refusal(file)


# --- a state file is replaced as a whole ------------------------------------------------------------------------


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
