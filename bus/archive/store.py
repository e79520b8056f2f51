"""What an archive store is: files by name, written once and never changed."""

import re
from typing import Protocol

from lanebus.bus.errors import InvalidArchiveName

__all__ = ("FILE_LIMIT_BYTES", "ArchiveStore", "check_name")

FILE_LIMIT_BYTES = 128 * 1_048_576
"""No segment is so large; what is larger was put there by somebody else, and is not read."""

_PART = r"[a-z0-9_=-][a-z0-9_=.-]{0,199}"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class ArchiveStore(Protocol):
    """A place for segments. Any number of processes may write the same at once; nobody sees a part of a file.

    A name is one or more parts with a slash between them, each of small letters, digits and `_-=.`; it ends in the
    SHA-256 of what it names, so whoever writes a name again writes the same.
    """

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """Keep these bytes; they are safe when it returns. Where they are already, nothing is done.

        Cancelling it leaves all of them or nothing.

        Raises:
            InvalidArchiveName: the name is none.
            Unavailable: the store cannot be reached, or refused.
            SetupError: it does not let us in.
        """
        ...

    async def get(self, name: str) -> bytes | None:
        """The bytes, not verified; None if there are none.

        Raises:
            MessageTooLarge: there are more than any segment has; they were not read.
            InvalidArchiveName, Unavailable, SetupError: as for `put_if_absent`.
        """
        ...

    async def names(self, folder: str) -> list[str]:
        """The names in this folder, in order; none if there is no such folder.

        Raises:
            InvalidArchiveName, Unavailable, SetupError: as for `put_if_absent`.
        """
        ...

    async def delete(self, name: str) -> None:
        """Have nothing under this name.

        Raises:
            InvalidArchiveName, Unavailable, SetupError: as for `put_if_absent`.
        """
        ...

    async def clear(self, folder: str) -> None:
        """Have nothing in this folder, whatever its name. Broken off it leaves some.

        Raises:
            InvalidArchiveName, Unavailable, SetupError: as for `put_if_absent`.
        """
        ...


def check_name(name: str) -> str:
    """The name, if it is one.

    Raises:
        InvalidArchiveName: a part of it is empty, begins with a dot, or holds another character.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidArchiveName(name)
    return name
