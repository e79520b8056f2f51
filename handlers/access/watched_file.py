"""The lines of a small file, read again when the file changes."""

import os
import stat
from pathlib import Path
from time import monotonic

from lanebus.bus.storage.ownership import exposure
from lanebus.handlers.access.bounds import DEFAULT_ACCESS_BOUNDS, AccessBounds

__all__ = ("WatchedFile",)


class WatchedFile:
    """The lines of a file. Empty lines, and lines that begin with `#`, are left out."""

    def __init__(self, path: Path, bounds: AccessBounds = DEFAULT_ACCESS_BOUNDS) -> None:
        """
        Args:
            path: the file.
            bounds: its size, and how often it is looked at.
        """
        self.path, self._bounds = path, bounds
        self._facts: os.stat_result | None = None
        self._seen: tuple[int, int, int] | None = None
        self._fault = ""
        self._lines: tuple[str, ...] | None = None
        self._next = 0.0

    def lines(self) -> tuple[str, ...] | None:
        """Return the lines; None if the file cannot be read.

        A change shows within `refresh_seconds`.
        """
        if monotonic() >= self._next:
            # Not in a thread: a look at a local file takes microseconds, and a change must show before the next frame.
            self._read()
            self._next = monotonic() + self._bounds.refresh_seconds
        return self._lines

    def fault(self, what: str) -> str:
        """Return why the file has no lines: "does not exist".

        Args:
            what: name of what the file should hold.
        """
        return self._fault or f"holds no {what}"

    def exposure(self) -> str:
        """Return who else may read or change the file that was read last, as `ownership.exposure` does."""
        return "" if self._facts is None else exposure(self._facts)

    @property
    def is_writable_by_all(self) -> bool:
        """Whether every user may write the file that was read last."""
        return os.name == "posix" and self._facts is not None and bool(self._facts.st_mode & stat.S_IWOTH)

    def _read(self) -> None:
        """Read the file if it has changed. One descriptor is judged and read, because the name may change meanwhile."""
        self._fault, text, seen = "", "", None
        try:
            # Without waiting at a pipe, which is refused: it can be read only once.
            with os.fdopen(os.open(self.path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                self._facts = found = os.fstat(file.fileno())
                seen = (found.st_mtime_ns, found.st_size, found.st_ino)
                if seen == self._seen:
                    return
                data = file.read(self._bounds.file_bytes + 1) if stat.S_ISREG(found.st_mode) else b""
            if not stat.S_ISREG(found.st_mode):
                self._fault = "is no regular file"
            elif len(data) > self._bounds.file_bytes:
                self._fault = f"is larger than {self._bounds.file_bytes} bytes"
            else:
                text = data.decode()
        except FileNotFoundError:
            self._fault = "does not exist"
        except UnicodeDecodeError:
            self._fault = "cannot be read: it is no UTF-8 text"
        except OSError as error:
            self._fault = f"cannot be read: {error.strerror}"
        self._seen = None if self._fault else seen
        lines = [line.strip() for line in text.splitlines()]
        self._lines = None if self._fault else tuple(line for line in lines if line and not line.startswith("#"))
