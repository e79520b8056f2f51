"""The data directory of an embedded server: find its path, and check that no other user can enter the directory."""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, ServerFailed, SocketPathTooLong
from lanebus.bus.storage.folder import FULL

__all__ = ("DataDir", "default_data_dir")

# The size of sun_path without its final NUL byte.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


def default_data_dir() -> Path:
    """Return the data directory to use if none is given.

    This is LANEBUS_DATA_DIR if that is set. Otherwise it is the directory `lanebus` in XDG_DATA_HOME or ~/.local/share,
    or on macOS in ~/Library/Application Support.

    Source: XDG Base Directory Specification 0.8, which ignores a relative XDG_DATA_HOME.
    """
    if chosen := os.environ.get("LANEBUS_DATA_DIR"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "lanebus"
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data_home if data_home.is_absolute() else Path.home() / ".local" / "share") / "lanebus"


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
        """
        directory = cls((default_data_dir() if path is None else path).expanduser().resolve())
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
            raise DirectoryNotOwned(self.path, error.strerror or "permission denied") from error
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno not in FULL:
                raise DirectoryNotCreated("data directory", self.path, reason) from error
            raise ServerFailed(
                f"cannot create the data directory {self.path}: {reason}", "free space, or choose another one"
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
            raise DirectoryNotOwned(self.path, error.strerror or "permission denied") from error
        if not stat.S_ISDIR(facts.st_mode):
            raise DirectoryNotOwned(self.path, "is not a directory; choose another path")
        if sys.platform != "win32" and facts.st_uid != os.geteuid():
            raise DirectoryNotOwned(
                self.path, f"belongs to user {facts.st_uid}, this is user {os.geteuid()}; choose another one"
            )
        if facts.st_mode & 0o077:
            mode = stat.S_IMODE(facts.st_mode)
            raise DirectoryNotOwned(self.path, f"has mode {mode:04o}, so other users may enter it; make it 0700")
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
