"""A directory that only this user can enter, and its lock. These functions block: call them in a thread."""

import os
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from lanebus.bus.errors import DirectoryNotCreated, DirectoryNotOwned, SetupError
from lanebus.bus.storage.descriptors import FILE
from lanebus.bus.storage.ownership import owner_fault
from lanebus.handlers.ui.uploads.errors import UploadPlaceBusy

if sys.platform != "win32":
    import fcntl

__all__ = ("PrivateFolder", "check_folder", "try_lock")

_WHAT = "upload directory"


def check_folder(path: Path) -> None:
    """Create a directory for uploads, or check the existing one. Otherwise the first upload would meet the fault.

    Raises:
        SetupError: the directory cannot be created or written, or another user may enter it.
    """
    try:
        with PrivateFolder(path, lock_seconds=0.0).locked():
            return
    except UploadPlaceBusy:
        return  # another server uses it
    except OSError as error:
        fault = f"{_WHAT} {path} cannot be written: {error.strerror or type(error).__name__}"
        raise SetupError(fault, "choose another one with --uploads") from None


class PrivateFolder:
    """A directory of mode 0700, which is created when it is needed."""

    def __init__(self, path: Path, lock_seconds: float) -> None:
        """
        Args:
            path: the directory.
            lock_seconds: longest wait for the lock.
        """
        self.path, self._seconds = path, lock_seconds

    @property
    def exists(self) -> bool:
        """Whether the directory was created."""
        return self.path.exists()

    @contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Let only one caller at a time into the block, of all processes of this machine.

        Raises:
            UploadPlaceBusy: another process held the lock for too long.
            DirectoryNotCreated: the directory cannot be created.
            DirectoryNotOwned: another user may enter the directory.
            SetupError: the system has no file locks.
        """
        self._prepare()
        file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | FILE, 0o600)
        until = time.monotonic() + self._seconds
        try:
            while not try_lock(file):
                if time.monotonic() > until:
                    raise UploadPlaceBusy(self._seconds)
                time.sleep(0.005)
            yield
        finally:
            os.close(file)

    def _prepare(self) -> None:
        if sys.platform == "win32":
            raise SetupError(f"{_WHAT}: this system has no file locks", "upload to a server on Linux or macOS")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DirectoryNotCreated(_WHAT, self.path, error.strerror or type(error).__name__) from None
        facts = self.path.lstat()
        is_link = not stat.S_ISDIR(facts.st_mode)
        if fault := "is a symbolic link" if is_link else owner_fault(facts, is_private=True):
            raise DirectoryNotOwned(self.path, fault, what=_WHAT, remedy="choose another one, or make it 0700")


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed. Return False if another opener has locked it."""
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
