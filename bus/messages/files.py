"""Read a media file that a user names. Only this module opens paths, and it never gets a path from a message."""

import os
import stat
from pathlib import Path

from lanebus.bus.errors import MediaRefused
from lanebus.bus.messages.media_checks import require_size

__all__ = ("read_file",)


def read_file(path: Path, *, limit_bytes: int, within: Path | None = None) -> bytes:
    """Return a file's bytes. Only regular files are read, because a pipe or a device might never end.

    Args:
        path: the file.
        limit_bytes: the largest size to accept.
        within: the folder that must contain the file, after symbolic links are resolved; None allows any folder.

    Raises:
        MediaRefused: the file is not a regular file, is empty, or is outside of `within`.
        MediaTooLarge: the file is larger than `limit_bytes`. At most one byte more than the limit was read.
        OSError: the file does not exist or may not be read.
    """
    real = path.resolve(strict=True)
    if within is not None and not real.is_relative_to(within.resolve(strict=True)):
        raise MediaRefused(path.name, "outside of the allowed folder")
    # Links are resolved above. With these flags, `open` refuses a link that has replaced the file since, and does not
    # block on a pipe.
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(real, os.O_RDONLY | flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise MediaRefused(path.name, "not a regular file")
        require_size(status.st_size, limit_bytes=limit_bytes)
        data = file.read(limit_bytes + 1)  # the file may have grown, and some file systems report a size of 0
    require_size(len(data), limit_bytes=limit_bytes)
    if not data:
        raise MediaRefused(path.name, "empty")
    return data
