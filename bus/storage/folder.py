"""Store blobs as files in a directory of this user, and a small file of state. No link of another user is followed.

A blob is written to a temporary file, which is then renamed. If a process is killed while it writes, it leaves a file
`*.part`, which is never read.
"""

import errno
import json
import os
import shlex
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TypeVar, cast

from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, MessageTooLarge, SetupError, Unavailable
from lanebus.bus.storage.blobs import BlobHead

T = TypeVar("T")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Disk errors that may pass without a change of a setting, such as a full disk."""

_LINK = frozenset({errno.ELOOP, errno.ENOTDIR})
"""errors of a component that is a symbolic link in place of a folder or file"""

_PART = ".part"


class Folder:
    """A `BlobStore` in a directory. A missing directory is created. Only the owner can read the directory and its
    files.

    The directory and each folder in it must belong to this user or to root, and no other user may write to them. No
    symbolic link is followed. Links on the way to the directory are resolved once, when the store is created.

    Calls run in threads; a cancelled call waits for its thread to end. Every method raises `DirectoryNotOwned` if a
    folder is not as said above, or a blob is no regular file.
    """

    def __init__(self, path: Path, what: str) -> None:
        """
        Args:
            path: the directory.
            what: name of the directory in error texts, such as "media directory".

        Raises:
            SetupError: the system cannot open folders safely. Windows cannot.
        """
        if not HAS_DESCRIPTORS:
            raise SetupError(f"{what}: this system has no directory descriptors", "use an object store")
        absolute = Path(os.path.abspath(path))
        self._path, self._what = Path(os.path.realpath(absolute.parent), absolute.name), what

    async def put_if_absent(self, name: str, data: bytes, *, content_type: str | None = None) -> None:
        """See `BlobStore`. When the call returns, the bytes and the file's name are on disk."""
        del content_type  # files have no content type
        try:
            await self._run(lambda: self._write(PurePosixPath(name), data))
        except FileNotFoundError:
            raise Unavailable(f"{self._what} {self._path}: another program removed one of its folders") from None

    async def get(self, name: str, *, limit_bytes: int | None = None) -> bytes | None:
        """See `BlobStore`."""
        try:
            return await self._run(lambda: self._read(PurePosixPath(name), limit_bytes))
        except FileNotFoundError:
            return None

    async def head(self, name: str) -> BlobHead | None:
        """See `BlobStore`."""
        try:
            return BlobHead(await self._run(lambda: self._size(PurePosixPath(name))))
        except FileNotFoundError:
            return None

    async def names(self, folder: str) -> list[str]:
        """See `BlobStore`. Subfolders and symbolic links are not listed."""
        try:
            found = await self._run(lambda: self._listed(PurePosixPath(folder)))
        except FileNotFoundError:
            return []
        return sorted(str(PurePosixPath(folder, name)) for name in found if not name.endswith(_PART))

    async def delete(self, name: str) -> None:
        """See `BlobStore`. When the call returns, the deletion is durable."""
        with suppress(FileNotFoundError):
            await self._run(lambda: self._delete(PurePosixPath(name)))

    async def clear(self, folder: str) -> None:
        """See `BlobStore`. Partial files of killed processes are deleted too. A folder with subfolders stays."""
        with suppress(FileNotFoundError):
            await self._run(lambda: self._clear(PurePosixPath(folder)))

    # --- in a thread ----------------------------------------------------------------------------------------------

    def _write(self, name: PurePosixPath, data: bytes) -> None:
        with self._entered(name.parent, create=True) as folders:
            try:
                is_stored = _size_at(folders[-1], name.name) == len(data)
            except FileNotFoundError:
                is_stored = False
            if not is_stored:  # this also replaces a link or a pipe of this name
                write_and_rename(folders[-1], name.name, data)
            # This is also needed if the file existed: its writer may have been killed before the name was on disk.
            for folder in reversed(folders):
                os.fsync(folder)

    def _read(self, name: PurePosixPath, limit_bytes: int | None) -> bytes:
        with self._entered(name.parent) as folders, os.fdopen(self._open(folders[-1], name), "rb") as file:
            if limit_bytes is not None and (size := os.fstat(file.fileno()).st_size) > limit_bytes:
                raise MessageTooLarge(size, limit_bytes)
            return file.read()

    def _size(self, name: PurePosixPath) -> int:
        with self._entered(name.parent) as folders:
            size = _size_at(folders[-1], name.name)
        if size is None:
            raise self._unsafe(self._path / name, "is no regular file", "remove it")
        return size

    def _listed(self, folder: PurePosixPath) -> list[str]:
        with self._entered(folder) as folders, os.scandir(folders[-1]) as entries:
            return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def _delete(self, name: PurePosixPath) -> None:
        with self._entered(name.parent) as folders:
            os.unlink(name.name, dir_fd=folders[-1])
            os.fsync(folders[-1])

    def _clear(self, folder: PurePosixPath) -> None:
        with self._entered(folder) as folders:
            with os.scandir(folders[-1]) as entries:
                names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folders[-1])
            os.fsync(folders[-1])
            with suppress(OSError):  # it has subfolders, or another process has written into it or removed it meanwhile
                os.rmdir(folder.name, dir_fd=folders[-2])
                os.fsync(folders[-2])

    def _open(self, folder: int, name: PurePosixPath) -> int:
        """Open a blob to read it."""
        try:
            file = os.open(name.name, os.O_RDONLY | FILE, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._unsafe(self._path / name, "is a symbolic link", "remove it") from None
            raise
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
        raise self._unsafe(self._path / name, "is no regular file", "remove it")

    @contextmanager
    def _entered(self, folder: PurePosixPath, *, create: bool = False) -> Generator[Sequence[int], None, None]:
        """Open the store's directory and the folders down to `folder`, and give their descriptors, the outermost first.

        Raises:
            FileNotFoundError: a folder is missing, and `create` is False.
            DirectoryNotCreated: the store's directory cannot be created.
            DirectoryNotOwned: as the class says.
            OSError: a folder cannot be opened.
        """
        with ExitStack() as stack:
            at = self._way_in(stack, create=create)
            folders: list[int] = []
            place = self._path
            for part in (self._path.name or ".", *folder.parts):
                place = place / part if folders else place
                try:
                    at = _below(stack, at, part, READ, 0o700 if create else None)
                except OSError as error:
                    self._explain(error, at, part, place, create=create and not folders)
                    raise
                self._check(at, place)
                folders.append(at)
            yield folders

    def _way_in(self, stack: ExitStack, *, create: bool) -> int:
        """Return the descriptor of the folder that holds the store's directory. Create it if `create` is set."""
        parent = self._path.parent
        place, at = Path(parent.anchor), os.open(parent.anchor, PASS)
        stack.callback(os.close, at)
        for part in parent.parts[1:]:
            place /= part
            try:
                at = _below(stack, at, part, PASS, 0o777 if create else None)
            except OSError as error:
                self._explain(error, at, part, place, create=create)
                raise
        return at

    def _explain(self, error: OSError, parent: int, part: str, place: Path, *, create: bool) -> None:
        """Raise the error of the bus that tells why a folder cannot be opened, if there is one."""
        if error.errno in _LINK and stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
            raise self._unsafe(place, "is a symbolic link", "name the folder that it leads to, or remove it") from None
        if create and error.errno not in FULL:
            raise DirectoryNotCreated(self._what, self._path, error.strerror or type(error).__name__) from None

    def _check(self, folder: int, place: Path) -> None:
        """Raise DirectoryNotOwned if another user could have changed what is in an open folder."""
        if fault := owner_fault(os.fstat(folder)):
            remedy = "choose another directory, or change its owner"
            if fault.startswith("has mode"):
                remedy = "run `chmod go-w` on it, or name a folder in it, which is then created"
            raise self._unsafe(place, fault, remedy)

    def _unsafe(self, place: Path, fault: str, remedy: str) -> DirectoryNotOwned:
        return DirectoryNotOwned(place, fault, what=self._what, remedy=remedy)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await run_in_thread(step)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unavailable(f"{self._what} {self._path}: {error.strerror or type(error).__name__}") from None


def _below(stack: ExitStack, parent: int, part: str, flags: int, mode: int | None) -> int:
    """Open a folder below another for the length of `stack`. If it is missing, create it with `mode`, unless None."""
    try:
        folder = os.open(part, flags, dir_fd=parent)
    except FileNotFoundError:
        if mode is None:
            raise
        with suppress(FileExistsError):  # created meanwhile
            os.mkdir(part, mode, dir_fd=parent)
        folder = os.open(part, flags, dir_fd=parent)
    stack.callback(os.close, folder)
    return folder


def _size_at(folder: int, name: str) -> int | None:
    """Return the size of a file; None if it is no regular file, such as a link. Raise FileNotFoundError if missing."""
    facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def write_and_rename(folder: int, name: str, data: bytes, *, is_durable: bool = True) -> None:
    """Write a file that only its owner can read, and give it its name, in place of an earlier file.

    Args:
        folder: descriptor of the folder.
        name: name of the file.
        data: its content.
        is_durable: whether the content is on disk before the file has its name. The name itself is not flushed.

    Raises:
        OSError: the file cannot be written; an earlier file is unchanged.
    """
    part = f"{name[:100]}.{token_hex(8)}{_PART}"
    try:
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE, 0o600, dir_fd=folder)
        with os.fdopen(file, "wb") as writer:
            writer.write(data)
            writer.flush()
            if is_durable:
                os.fsync(writer.fileno())
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # a concurrent writer has written the same bytes
    except BaseException:
        with suppress(OSError):
            os.unlink(part, dir_fd=folder)
        raise


_WHAT, _REMEDY = "state directory", "choose another one with --state-dir or LANEBUS_STATE_DIR"


class StateFile:
    """A JSON object in a file. Processes may share the file: each write replaces it as a whole.

    The file counts only if no other user could have written it, because it decides whether a log is trusted. Calls run
    in threads; a cancelled call waits for its thread to end.
    """

    def __init__(self, path: Path, *, most_files: int = 200, limit_bytes: int = 4_096) -> None:
        """
        Args:
            path: the file. Its folder is created by the first write.
            most_files: maximum number of state files in the folder. The files that were not written for longest are
                removed: they are of servers that were given up, such as those of temporary directories.
            limit_bytes: a longer file counts as empty.
        """
        self._path, self._most_files, self._limit_bytes = path.absolute(), most_files, limit_bytes

    async def read(self) -> dict[str, object]:
        """Return the stored object; empty if there is none, or if the file is damaged.

        Raises:
            DirectoryNotOwned: another user could have written the file.
            DirectoryNotCreated: the file cannot be read.
        """
        return await run_in_thread(self._read)

    async def write(self, values: dict[str, object]) -> None:
        """Replace the object. After a power cut, the file may hold an earlier one.

        Raises:
            DirectoryNotOwned: another user could write to the folder.
            DirectoryNotCreated: the folder cannot be created, or the file cannot be written.
        """
        await run_in_thread(lambda: self._write(json.dumps(values).encode()))

    def _read(self) -> dict[str, object]:
        try:
            with os.fdopen(open_owned(self._path, _WHAT, _REMEDY), "rb") as file:
                text = file.read(self._limit_bytes + 1)
            found = cast("object", json.loads(text)) if len(text) <= self._limit_bytes else None
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        except OSError as error:
            raise self._fault(error) from None
        return cast("dict[str, object]", found) if isinstance(found, dict) else {}

    def _write(self, text: bytes) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = open_owned(self._path.parent, _WHAT, _REMEDY, is_folder=True)
            try:
                is_new = not self._path.exists()
                write_and_rename(folder, self._path.name, text, is_durable=False)
                if is_new:
                    self._remove_oldest()
            finally:
                os.close(folder)
        except OSError as error:
            raise self._fault(error) from None

    def _remove_oldest(self) -> None:
        found = sorted(self._path.parent.glob(f"*{self._path.suffix}"), key=lambda each: each.lstat().st_mtime)
        for path in found[: -self._most_files]:
            with suppress(FileNotFoundError):  # another process removed it
                path.unlink()

    def _fault(self, error: OSError) -> DirectoryNotCreated:
        return DirectoryNotCreated(_WHAT, self._path.parent, error.strerror or type(error).__name__, _REMEDY)


# Whether another user of this machine could have written a file or folder.
#
# Settings, code and keys that a program finds by itself decide what it does. So they count only if no user but this one
# and root could have written them, or replaced them in a folder on the way.


def owner_fault(facts: os.stat_result, *, is_private: bool = False, is_group_own: bool = False) -> str:
    """Return why another user may change a file or folder, in words that follow its path; "" if none may.

    Args:
        facts: of the file or folder.
        is_private: whether it must be this user's, and other users may not even enter it. Otherwise it may be root's.
        is_group_own: whether a group that only this user is in may write to it.
    """
    if os.name != "posix":
        return ""  # owners and modes say nothing there
    user, mode = os.geteuid(), stat.S_IMODE(facts.st_mode)
    if facts.st_uid != user and (is_private or facts.st_uid != 0):
        return f"belongs to user {facts.st_uid}, this is user {user}"
    if is_private:
        return f"has mode {mode:04o}, so other users may enter it" if mode & 0o077 else ""
    is_writable = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not (is_group_own and _is_own_group(facts.st_gid)))
    return f"has mode {mode:04o}, so other users may write to it" if is_writable else ""


def exposure(facts: os.stat_result) -> str:
    """Return who else may read or change a file of secrets, in words that follow its path; "" if nobody.

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
        fault = owner_fault(facts, is_group_own=True)
        is_sticky = facts.st_mode & stat.S_ISVTX and self._left
        if fault and not (is_sticky and facts.st_uid in {os.geteuid(), 0}):
            raise self._refused(place, fault)

    def _open(self, name: str, place: Path, facts: os.stat_result, flags: int) -> None:
        """Open the file at the end. It is not opened if it is no regular file: a device may act on that."""
        folder = os.fstat(self.at)
        if stat.S_ISREG(facts.st_mode):
            self._go_to(os.open(name, flags, dir_fd=self.at), place)
            facts = os.fstat(self.at)
        if not stat.S_ISREG(facts.st_mode):
            raise self._refused(place, "is no regular file")
        if fault := owner_fault(facts, is_group_own=True):
            raise self._refused(place, fault)
        if facts.st_nlink > 1 and owner_fault(folder, is_group_own=True):
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
