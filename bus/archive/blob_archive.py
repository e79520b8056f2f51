"""An archive as blobs, in a directory or in an object store: a folder for each session, a blob for each segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from lanebus.bus.archive.store import FILE_LIMIT_BYTES, check_name
from lanebus.bus.storage.blobs import BlobStore, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at

if TYPE_CHECKING:
    from pathlib import Path

    from obstore.store import ObjectStore

__all__ = ("DirectoryArchive", "ObjectArchive", "archive_store_at")

_OBJECTS = "archive store"


class _BlobArchive:
    """See `ArchiveStore`. A blob's name is the name of its segment, checked."""

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
    """The `ArchiveStore` in a directory. It is made if it is missing, for its owner alone; so are the files.

    A segment is on disk, and so is its name, when `put_if_absent` returns. `clear` also removes what was left half
    written, and what others have put there.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Folder(path, "archive directory"))


class ObjectArchive(_BlobArchive):
    """The `ArchiveStore` in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`.

    A segment is sent in one piece, which a server takes whole or not at all.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Takes a store as the package `obstore` makes them, with its credentials, time-outs and retries."""
        super().__init__(Objects(store, _OBJECTS))

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store by URL, as `object_store_at` takes them. Nothing connects yet.

        Raises:
            MissingExtra: the package is not installed.
            SetupError: the URL is none that it knows.
        """
        return cls(object_store_at(url, _OBJECTS))


def archive_store_at(place: str) -> DirectoryArchive | ObjectArchive:
    """Return the store at a URL such as `s3://bucket/prefix`, or in a directory. Nothing connects or is made yet.

    Raises:
        MissingExtra: a URL needs the package `obstore`, which is not installed.
        SetupError: the URL is none that it knows.
    """
    return store_at(place, DirectoryArchive, ObjectArchive.from_url)
