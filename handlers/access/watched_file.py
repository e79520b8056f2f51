"""The lines of a small file, read again when the file changes."""

import os
from pathlib import Path
from time import monotonic

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
        self._seen: tuple[int, int, int] | None = None
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
        try:
            if self.path.stat().st_size > self._bounds.file_bytes:
                return f"is larger than {self._bounds.file_bytes} bytes"
            self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return "does not exist"
        except UnicodeDecodeError:
            return "cannot be read: it is no UTF-8 text"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return f"holds no {what}"

    def modes(self) -> int:
        """Return the bits of the file's mode that allow the group and others something; 0 if it cannot be read."""
        if os.name != "posix":
            return 0  # modes say nothing there
        try:
            return self.path.stat().st_mode & 0o077
        except OSError:
            return 0

    def _read(self) -> None:
        try:
            found = self.path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen == self._seen:
                return
            text = self.path.read_text(encoding="utf-8") if found.st_size <= self._bounds.file_bytes else None
        except (OSError, UnicodeDecodeError):
            seen, text = None, None
        self._seen = seen
        lines = None if text is None else [line.strip() for line in text.splitlines()]
        self._lines = None if lines is None else tuple(line for line in lines if line and not line.startswith("#"))
