"""The one place where a path becomes bytes: a file that a user names here and now, never one that a message names."""

import os
import stat
from pathlib import Path

from lanebus.bus.errors import MediaRefused
from lanebus.bus.messages.media_checks import require_size

__all__ = ("read_file",)


def read_file(path: Path, *, limit_bytes: int, within: Path | None = None) -> bytes:
    """A file's bytes. It is looked at before it is read: a pipe or a device would never end.

    Args:
        within: the folder that it must be in, once links are followed.

    Raises:
        MediaRefused: it is no regular file, empty, or outside of `within`.
        MediaTooLarge: it is over the limit; no more than that was read.
        OSError: it is not there or may not be read.
    """
    real = path.resolve(strict=True)
    if within is not None and not real.is_relative_to(within.resolve(strict=True)):
        raise MediaRefused(path.name, "outside of the folder that files may come from")
    # Links are followed already. One that took the file's place meanwhile is not, and a pipe does not hold us up.
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(real, os.O_RDONLY | flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise MediaRefused(path.name, "no regular file")
        require_size(status.st_size, limit_bytes=limit_bytes)
        data = file.read(limit_bytes + 1)  # it may have grown, and files of some systems say that they have no size
    require_size(len(data), limit_bytes=limit_bytes)
    if not data:
        raise MediaRefused(path.name, "empty")
    return data
