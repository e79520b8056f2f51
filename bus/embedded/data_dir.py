"""The data directory of an embedded server: where it is, and that it is ours alone."""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from lanebus.bus.errors import DirectoryNotOwned, ServerFailed, SocketPathTooLong

__all__ = ("DataDir", "default_data_dir")

# The size of sun_path less its ending NUL byte.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


def default_data_dir() -> Path:
    """Where a user's sessions are kept when no directory is named.

    LANEBUS_DATA_DIR, else `lanebus` in the user's place for data: XDG_DATA_HOME or ~/.local/share, on macOS
    ~/Library/Application Support.

    Source: XDG Base Directory Specification 0.8 (a relative XDG_DATA_HOME is to be ignored).
    """
    if chosen := os.environ.get("LANEBUS_DATA_DIR"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "lanebus"
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data_home if data_home.is_absolute() else Path.home() / ".local" / "share") / "lanebus"


@dataclass(frozen=True, slots=True)
class DataDir:
    """An absolute path without symbolic links, so that everybody names the same socket.

    `keeper.py` gives the files their names too: it imports nothing of ours, and is left out where there is no server.
    """

    path: Path

    @classmethod
    def at(cls, path: Path | None) -> "DataDir":
        """The directory at a path, which need not exist; None is the default one.

        Raises:
            SocketPathTooLong: a socket in it would have a path longer than the kernel takes.
        """
        place = cls((default_data_dir() if path is None else path).expanduser().resolve())
        if len(os.fsencode(place.socket)) > SOCKET_PATH_BYTES:
            raise SocketPathTooLong(place.socket, SOCKET_PATH_BYTES)
        return place

    @property
    def socket(self) -> Path:
        return self.path / "sock"

    @property
    def log(self) -> Path:
        return self.path / "server.log"

    def prepare(self) -> None:
        """Make the directory, for this user alone, or check the one that is there.

        Raises:
            DirectoryNotOwned: another user's, or others may enter it, or we may not.
            ServerFailed: it cannot be made, such as on a full disk.
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
            raise ServerFailed(f"cannot make the data directory {self.path}: {error.strerror}") from error

    def check(self) -> bool:
        """False if there is no such directory.

        Raises:
            DirectoryNotOwned: there is one, but whoever else may enter it could also put a server of their own there.
        """
        try:
            facts = self.path.stat()
        except FileNotFoundError:
            return False
        except PermissionError as error:
            raise DirectoryNotOwned(self.path, error.strerror or "permission denied") from error
        if not stat.S_ISDIR(facts.st_mode):
            raise DirectoryNotOwned(self.path, "is not a directory")
        if sys.platform != "win32" and facts.st_uid != os.geteuid():
            raise DirectoryNotOwned(self.path, f"belongs to user {facts.st_uid}, this is user {os.geteuid()}")
        if facts.st_mode & 0o077:
            mode = stat.S_IMODE(facts.st_mode)
            raise DirectoryNotOwned(self.path, f"has mode {mode:04o}, so other users may enter it; make it 0700")
        return True

    def aof_bytes(self) -> int:
        """Size of the log on disk."""
        total = 0
        for file in (self.path / "appendonlydir").glob("*"):
            try:
                total += file.stat().st_size
            except FileNotFoundError:  # a rewrite has just replaced it
                continue
        return total
