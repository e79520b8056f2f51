"""The protocol of archive stores: files by name, written once and never changed."""

import re
from typing import Protocol

from lanebus.bus.errors import InvalidArchiveName

__all__ = ("FILE_LIMIT_BYTES", "ArchiveStore", "check_name")

FILE_LIMIT_BYTES = 128 * 1_048_576
"""Maximum number of bytes of a file that is read. Segments are smaller, so a larger file was written by another
program."""

_PART = r"[a-z0-9_=-][a-z0-9_=.-]{0,199}"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class ArchiveStore(Protocol):
    """A store for segments. Several processes may write the same file at once. A reader never sees a partial file.

    A name is one or more parts separated by slashes. A part consists of lower-case letters, digits and `_-=.`. The name
    contains the SHA-256 of the file, so every writer of a name writes the same bytes.
    """

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """Store a file, if it is not stored yet. When the call returns, the file is durable.

        If the call is cancelled, either the whole file is stored or nothing.

        Raises:
            InvalidArchiveName: the name does not have the form that `ArchiveStore` describes.
            Unavailable: the store cannot be reached, or failed.
            SetupError: the store refused access.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """Return the bytes of a file without verifying them, or None if the file is not stored.

        Raises:
            MessageTooLarge: the file is over `FILE_LIMIT_BYTES`. It was not read.
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder. The list is empty if the folder does not exist.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a file. Do nothing if the file is not stored.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def clear(self, folder: str) -> None:
        """Delete everything in a folder, including files of other programs, and the folder itself.

        The folder's name holds the id of a session, which an erasure must not leave. If the call is cancelled, some
        files remain.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...


def check_name(name: str) -> str:
    """Return `name` if it is valid.

    Raises:
        InvalidArchiveName: a part of the name is empty, begins with a dot, or has a character that is not allowed.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidArchiveName(name)
    return name
