"""Media as blobs, in a directory or in an object store, under names that are made from checked addresses alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

from lanebus.bus.errors import MediaMissing
from lanebus.bus.media.store import MediaHead, check_sha256, sha256_of, verified
from lanebus.bus.storage.blobs import BlobStore, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from obstore.store import ObjectStore

__all__ = ("DirectoryMedia", "ObjectMedia", "media_store_at")

_OBJECTS = "media store"


class _BlobMedia:
    """See `MediaStore`."""

    def __init__(self, blobs: BlobStore, name_of: Callable[[str], str]) -> None:
        """`name_of` makes a blob's name of an address."""
        self._blobs, self._name_of = blobs, name_of

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`."""
        sha256 = await sha256_of(data)
        await self._blobs.put_if_absent(self._name(sha256), data, content_type=mime_type)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        data = await self._blobs.get(self._name(sha256))
        if data is None:
            raise MediaMissing(sha256)
        return await verified(sha256, data)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        head = await self._blobs.head(self._name(sha256))
        return None if head is None else MediaHead(head.size_bytes, head.content_type)

    async def delete(self, sha256: str) -> bool:
        """See `MediaStore`. It looks first: an object store does not say whether there was something to delete."""
        is_there = await self.head(sha256) is not None
        await self._blobs.delete(self._name(sha256))
        return is_there

    def _name(self, sha256: str) -> str:
        return self._name_of(check_sha256(sha256))


class DirectoryMedia(_BlobMedia):
    """The `MediaStore` in a directory: one file each, `ab/cd/<sha256>`.

    The directory is made if it is missing, for its owner alone; so are the files. Media are on disk, and so is their
    name, when `put_if_absent` returns. Work is done by threads; a cancelled call waits for its own to end.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(Folder(path, "media directory"), lambda sha256: f"{sha256[:2]}/{sha256[2:4]}/{sha256}")


class ObjectMedia(_BlobMedia):
    """The `SigningStore` in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`.

    An object is `sha256/ab/<sha256>` below the store's own prefix. It carries its type, and says that it is an
    attachment: a browser that follows a signed URL saves it, and does not show what a stranger may have written for it.
    A store in memory or in a directory has no signed URLs.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Takes a store as the package `obstore` makes them, with its credentials, time-outs and retries."""
        self._objects = Objects(store, _OBJECTS)
        super().__init__(self._objects, lambda sha256: f"sha256/{sha256[:2]}/{sha256}")

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return a store by URL, as `object_store_at` takes them. Nothing connects yet.

        Raises:
            MissingExtra: the package is not installed.
            SetupError: the URL is none that it knows.
        """
        return cls(object_store_at(url, _OBJECTS))

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """See `SigningStore`."""
        return await self._objects.sign(self._name(sha256), timedelta(seconds=seconds))


def media_store_at(place: str) -> DirectoryMedia | ObjectMedia:
    """Return the store at a URL such as `s3://bucket/prefix`, or in a directory. Nothing connects or is made yet.

    Raises:
        MissingExtra: a URL needs the package `obstore`, which is not installed.
        SetupError: the URL is none that it knows.
    """
    return store_at(place, DirectoryMedia, ObjectMedia.from_url)
