"""The protocol of archive stores: files by name, written once and never changed."""

import re
from typing import Protocol

from lanebus.bus.errors import InvalidArchiveName

__all__ = ("FILE_LIMIT_BYTES", "ArchiveStore", "check_name")

FILE_LIMIT_BYTES = 128 * 1_048_576
"""Segments are smaller. A larger file was written by another program and is not read."""

_PART = r"[a-z0-9_=-][a-z0-9_=.-]{0,199}"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class ArchiveStore(Protocol):
    """A store for segments. Several processes may write the same file at once. A reader never sees a partial file.

    A name is one or more parts separated by slashes, each of lower-case letters, digits and `_-=.`. It contains the
    SHA-256 of the file, so every writer of a name writes the same bytes.
    """

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """Store a file. It is durable when the call returns. Do nothing if it is stored already.

        If the call is cancelled, the whole file is stored or nothing.

        Raises:
            InvalidArchiveName: the name has another form.
            Unavailable: the store cannot be reached, or refused.
            SetupError: the store refused access.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """Return a file, not verified, or None if it is not stored.

        Raises:
            MessageTooLarge: the file is over `FILE_LIMIT_BYTES`. It was not read.
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if there is no such folder.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a file. Do nothing if it is not stored.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def clear(self, folder: str) -> None:
        """Delete everything in a folder, including files of other programs. If it is cancelled, some files remain.

        Raises:
            InvalidArchiveName: as for `put_if_absent`.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...


def check_name(name: str) -> str:
    """Return `name` if it is valid.

    Raises:
        InvalidArchiveName: a part of it is empty, begins with a dot, or holds another character.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidArchiveName(name)
    return name
