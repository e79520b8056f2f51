"""Whether another user of this machine could have written a file or folder, and how both are opened through no link.

Settings, code and keys that a program finds by itself decide what it does. So they count only if no user but this one
and root could have written them, or replaced them in a folder on the way.

The command line asks this before it reads anything, so this imports next to nothing.
"""

import errno
import os
import shlex
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from lanebus.bus.errors import DirectoryNotOwned


def owner_fault(facts: os.stat_result, *, is_private: bool = False, opened: int | None = None) -> str:
    """Return why another user may change a file or folder, as the end of a sentence about it; "" if none may.

    Args:
        facts: of the file or folder.
        is_private: whether it must be this user's, and other users may not even enter it. Otherwise it may be root's.
        opened: a descriptor of it. With one, a group that only this user is in may write to it, if no access control
            list names other users.
    """
    if os.name != "posix":
        return ""  # owners and modes say nothing there
    user, mode = os.geteuid(), stat.S_IMODE(facts.st_mode)
    if facts.st_uid != user and (is_private or facts.st_uid != 0):
        return f"belongs to user {facts.st_uid}, this is user {user}"
    if is_private:
        return f"has mode {mode:04o}, so other users may enter it" if mode & 0o077 else ""
    if mode & stat.S_IWGRP and not mode & stat.S_IWOTH and opened is not None and _is_own_group(facts.st_gid):
        more = f"has mode {mode:04o} and an access control list, so other users may write to it"
        return more if _has_acl(opened) else ""
    is_writable = mode & (stat.S_IWOTH | stat.S_IWGRP)
    return f"has mode {mode:04o}, so other users may write to it" if is_writable else ""


def exposure(facts: os.stat_result) -> str:
    """Return who else may read or change a file of secrets, as the end of a sentence about it; "" if nobody.

    Root may: the files of container secrets are root's.
    """
    if os.name != "posix":
        return ""
    return owner_fault(facts) or ("may be read or written by other users" if facts.st_mode & 0o077 else "")


def open_owned(path: Path, what: str, remedy: str, *, is_folder: bool = False) -> int:
    """Open a file to read it, if no other user could have written or replaced it. Return its descriptor.

    Each folder on the way must belong to this user or to root, and no other user may write to it. Others may write to a
    sticky folder, such as /tmp, where they cannot replace what is not theirs. Links are followed; their owners and the
    folders that they lead through are judged too. Each component is opened below the descriptor of its folder, and the
    opened file is judged, so that none can be swapped meanwhile. On Windows, nothing is judged.

    Args:
        path: the file.
        what: what the file is, for the error.
        remedy: what the user can do instead of changing the owner or the mode.
        is_folder: open a folder instead, into which no other user may put a file.

    Raises:
        DirectoryNotOwned: another user could have written the file, or it is no regular file.
        OSError: the file is missing or cannot be opened.
    """
    if not HAS_DESCRIPTORS:
        return os.open(path, os.O_RDONLY | FILE)
    way = _Way(path, what, remedy)
    try:
        return way.walk(PASS if is_folder else os.O_RDONLY | FILE)
    except BaseException:
        if way.at >= 0:
            os.close(way.at)
        raise


class _Way:
    """The way from the root to a file, and how far it was walked."""

    def __init__(self, path: Path, what: str, remedy: str) -> None:
        self._path, self._what, self._remedy = path, what, remedy
        self._left = [*reversed(path.absolute().parts[1:])]
        self.at, self._place = -1, Path(path.absolute().anchor)

    def walk(self, flags: int, links: int = 40) -> int:
        """Return the descriptor of the end of the way, opened with these flags. Follow as many links as the kernel."""
        self._enter(os.open(self._place, PASS), self._place)
        while self._left:
            part = self._left.pop()
            place = self._place.parent if part == ".." else self._place / part
            facts = os.stat(part, dir_fd=self.at, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                links -= 1
                if links < 0:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                self._follow(part, place, facts)
            elif self._left or flags == PASS:
                self._enter(os.open(part, PASS, dir_fd=self.at), place)
            else:
                self._open(part, place, facts, flags)
        return self.at

    def _follow(self, part: str, place: Path, facts: os.stat_result) -> None:
        if facts.st_uid not in {os.geteuid(), 0}:
            raise self._refused(place, owner_fault(facts))
        target = PurePosixPath(os.readlink(part, dir_fd=self.at))
        self._left += reversed(target.parts[target.is_absolute() :])
        if target.is_absolute():
            self._enter(os.open(target.anchor, PASS), Path(target.anchor))

    def _enter(self, folder: int, place: Path) -> None:
        """Go on at an open folder. Raise if another user may replace what is in it."""
        self._go_to(folder, place)
        facts = os.fstat(folder)
        fault = owner_fault(facts, opened=folder)
        is_sticky = facts.st_mode & stat.S_ISVTX and self._left
        if fault and not (is_sticky and facts.st_uid in {os.geteuid(), 0}):
            raise self._refused(place, fault)

    def _open(self, name: str, place: Path, facts: os.stat_result, flags: int) -> None:
        """Open the file at the end. It is not opened if it is no regular file: a device may act on that."""
        folder_fault = owner_fault(os.fstat(self.at), opened=self.at)
        if stat.S_ISREG(facts.st_mode):
            self._go_to(os.open(name, flags, dir_fd=self.at), place)
            facts = os.fstat(self.at)
        if not stat.S_ISREG(facts.st_mode):
            raise self._refused(place, "is no regular file")
        if fault := owner_fault(facts, opened=self.at):
            raise self._refused(place, fault)
        if facts.st_nlink > 1 and folder_fault:
            raise self._refused(place, "has several names, and another user may have given it this one")

    def _go_to(self, descriptor: int, place: Path) -> None:
        if self.at >= 0:
            os.close(self.at)
        self.at, self._place = descriptor, place

    def _refused(self, place: Path, fault: str) -> DirectoryNotOwned:
        where = "" if place == self._path.absolute() else f"{place} "
        steps = {
            "belongs": "if you trust it, make it yours with `chown`",
            "has mode": f"check its content, and run `chmod go-w {shlex.quote(str(place))}`",
        }
        step = next((text for begin, text in steps.items() if fault.startswith(begin)), "remove it")
        return DirectoryNotOwned(
            self._path, where + fault, what=self._what, remedy=", or ".join(filter(None, (step, self._remedy)))
        )


def _is_own_group(group: int) -> bool:
    """Return whether only this user is in a group: its primary one, of the same name or number."""
    import grp  # noqa: PLC0415  # Windows has neither
    import pwd  # noqa: PLC0415

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_same = user.pw_gid == group and (found.gr_name == user.pw_name or group == user.pw_uid)
    members = {*found.gr_mem, *(each.pw_name for each in pwd.getpwall() if each.pw_gid == group)}
    return is_same and members <= {user.pw_name}


def _has_acl(descriptor: int) -> bool:
    """Return whether an access control list names more users. The mode then shows its mask as the group's rights."""
    if sys.platform != "linux":
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(f"/proc/self/fd/{descriptor}")  # it may be opened with O_PATH
    except OSError as error:
        return error.errno != errno.ENOTSUP


# Open folders and files by directory descriptors, so that no symbolic link is followed.
#
# A path that is checked and then opened by its name can be another file by then: a folder was swapped for a link. Here
# each component is opened below the descriptor of its parent, and a component that is a link is an error.

HAS_DESCRIPTORS = os.open in os.supports_dir_fd
"""whether the system has directory descriptors. Windows has none"""

_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW

FILE: int = _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""flags to open a file: never a link, and without waiting at a pipe"""
READ: int = os.O_RDONLY | _FOLDER
"""flags to open a folder that is listed or flushed"""
PASS: int = getattr(os, "O_PATH", os.O_RDONLY) | _FOLDER
"""flags to open a folder that is only passed, which needs no right to list it"""


@contextmanager
def opened(path: Path) -> Generator[int, None, None]:
    """Open a folder for the block, and give its descriptor.

    Args:
        path: an absolute path without `..`.

    Raises:
        OSError: a component is missing, or is no folder. A symbolic link is none.
    """
    folder = os.open(path.anchor, PASS)
    try:
        for part in path.parts[1:]:
            parent, folder = folder, os.open(part, PASS, dir_fd=folder)
            os.close(parent)
        yield folder
    finally:
        os.close(folder)


def open_below(folder: int, parts: Sequence[str], flags: int) -> int:
    """Open a file below a folder, and return its descriptor.

    Args:
        folder: descriptor of the folder.
        parts: the names of the folders on the way and of the file, none of them `..`. Empty opens the folder itself.
        flags: flags of the file, in addition to `FILE`.

    Raises:
        OSError: a component is missing, is a symbolic link, or is no folder.
    """
    at = os.dup(folder)
    try:
        for part in parts[:-1]:
            parent, at = at, os.open(part, PASS, dir_fd=at)
            os.close(parent)
        return os.open(parts[-1] if parts else ".", flags | FILE, dir_fd=at)
    finally:
        os.close(at)
