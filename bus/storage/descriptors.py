"""Open folders and files by directory descriptors, so that no symbolic link is followed.

A path that is checked and then opened by its name can be another file by then: a folder was swapped for a link. Here
each component is opened below the descriptor of its parent, and a component that is a link is an error.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ("FILE", "HAS_DESCRIPTORS", "PASS", "READ", "open_below", "opened")

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
