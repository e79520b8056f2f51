"""Write a file atomically."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ("atomic_file",)


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    The file's data is synced to disk before the replacement.

    Only the owner may read the file. A symbolic link at `path` is replaced, not followed.

    Raises:
        OSError: the file could not be written. `path` is unchanged.
    """
    # In the same directory, because a rename cannot cross file systems.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
