"""The protocol of archive stores, which hold files written once, and the stores in a directory and in a bucket."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from lanebus.bus.errors import InvalidArchiveName, require_instance, require_text
from lanebus.bus.storage.blobs import BlobStore, Objects, object_store_at, store_at
from lanebus.bus.storage.folder import Folder

if TYPE_CHECKING:
    from obstore.store import ObjectStore


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


# Archive stores in a directory and in an object store. Each session is a folder, and each segment a blob.

_OBJECTS = "archive store"


class _BlobArchive:
    """An `ArchiveStore` on a blob store. Checks the name of a file, and uses it as the name of the blob."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """See `ArchiveStore`."""
        await self._blobs.put_if_absent(check_name(name), data, content_type="application/gzip")

    async def get(self, name: str) -> bytes | None:
        """See `ArchiveStore`."""
        return await self._blobs.get(check_name(name), limit_bytes=FILE_LIMIT_BYTES)

    async def names(self, folder: str) -> list[str]:
        """See `ArchiveStore`."""
        return await self._blobs.names(check_name(folder))

    async def delete(self, name: str) -> None:
        """See `ArchiveStore`."""
        await self._blobs.delete(check_name(name))

    async def clear(self, folder: str) -> None:
        """See `ArchiveStore`."""
        await self._blobs.clear(check_name(folder))


class DirectoryArchive(_BlobArchive):
    """An `ArchiveStore` in a directory.

    A missing directory is created. Only the owner can read the directory and its files. When `put_if_absent` returns,
    the file and its name are on disk. `clear` also removes partly written files and files of other programs.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        require_instance("path", path, Path, "pass a pathlib.Path")
        super().__init__(Folder(path, "archive directory"))


class ObjectArchive(_BlobArchive):
    """An `ArchiveStore` in S3, Google Cloud Storage or Azure. Needs the package obstore, in the extra `s3`.

    A segment is sent in one request, and the server either stores the whole segment or nothing.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Use a store of the package `obstore`. Credentials, time-outs and retries are settings of `store`."""
        super().__init__(Objects(store, _OBJECTS))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the store at a URL such as `s3://bucket/prefix`. Does not connect yet.

        Raises:
            MissingExtra: the package `obstore` is not installed.
            SetupError: `obstore` does not know this kind of URL.
        """
        return cls(object_store_at(url, _OBJECTS))


def archive_store_at(place: str) -> DirectoryArchive | ObjectArchive:
    """Return the store at a URL or in a directory. Does not connect or create anything yet.

    Args:
        place: a URL such as `s3://bucket/prefix`, or the path of a directory.

    Raises:
        SetupError: `place` is a URL with an unknown scheme, or one that `obstore` does not support.
        MissingExtra: `place` is a URL, and the package `obstore` is not installed.
    """
    require_text("place", place, is_filled=True)
    return store_at(place, DirectoryArchive, ObjectArchive.from_url)
