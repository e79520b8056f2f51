"""Archive stores in a directory and in an object store. Each session is a folder, and each segment a blob."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from lanebus.bus.archive.store import FILE_LIMIT_BYTES, check_name
from lanebus.bus.errors import require_instance, require_text
from lanebus.bus.storage.blobs import BlobStore, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ("DirectoryArchive", "ObjectArchive", "archive_store_at")

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
