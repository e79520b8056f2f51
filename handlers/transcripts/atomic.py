"""A file that is there whole or not at all."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ("atomic_file",)


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """A new file to write, which takes the place of `path` once the block ends without an error and it is on disk.

    Only its owner may read it. A link at `path` is replaced, not followed.

    Raises:
        OSError: it could not be written; what was at `path` before is untouched.
    """
    # In the same directory, as a rename does not leave a file system.
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
