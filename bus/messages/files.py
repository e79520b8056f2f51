"""Read a media file that a user names. Only this module opens paths, and it never gets a path from a message."""

import errno
import os
import stat
from pathlib import Path

from lanebus.bus.errors import MediaRefused
from lanebus.bus.messages.media_checks import require_size
from lanebus.bus.storage.descriptors import FILE, HAS_DESCRIPTORS, open_below, opened
from lanebus.bus.whole_text import whole_text

__all__ = ("read_file",)


def read_file(path: Path, *, limit_bytes: int, within: Path | None = None) -> bytes:
    """Return a file's bytes. Only regular files are read, because a pipe or a device might never end.

    Args:
        path: the file.
        limit_bytes: the largest size to accept.
        within: the folder that must contain the file, after symbolic links are resolved; None allows any folder. No
            link that replaces a folder meanwhile is followed. On Windows, such a link may be followed.

    Raises:
        MediaRefused: the file is not a regular file, is empty, or is outside of `within`.
        MediaTooLarge: the file is larger than `limit_bytes`. At most one byte more than the limit was read.
        OSError: the file does not exist or may not be read.
    """
    with os.fdopen(_open(path, within), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise MediaRefused(whole_text(path.name), "not a regular file")
        require_size(status.st_size, limit_bytes=limit_bytes)
        data = file.read(limit_bytes + 1)  # the file may have grown, and some file systems report a size of 0
    require_size(len(data), limit_bytes=limit_bytes)
    if not data:
        raise MediaRefused(whole_text(path.name), "empty")
    return data


def _open(path: Path, within: Path | None) -> int:
    """Resolve links, open the file without following another link, and return its descriptor.

    A folder below `within` may be swapped for a link at any moment. So the file is opened from the descriptor of
    `within`, component by component, and not by the path that was checked.
    """
    real = path.resolve(strict=True)
    if within is None:
        return os.open(real, os.O_RDONLY | FILE)
    allowed = within.resolve(strict=True)
    if not real.is_relative_to(allowed):
        raise MediaRefused(whole_text(path.name), "outside of the allowed folder")
    if not HAS_DESCRIPTORS:
        return os.open(real, os.O_RDONLY | FILE)
    try:
        with opened(allowed) as folder:
            return open_below(folder, real.relative_to(allowed).parts, os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR}:  # swapped for a link since it was resolved
            raise MediaRefused(whole_text(path.name), "outside of the allowed folder") from None
        raise
