"""Media stores in a directory and in an object store. Blob names are built only from checked values.

Media of each namespace are in a folder of their own. So several namespaces may share a directory or a bucket: none
reads or deletes the media of another.
"""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lanebus.bus.errors import MediaMissing, require_instance, require_text
from lanebus.bus.media.store import MediaHead, check_sha256, sha256_of, verified
from lanebus.bus.storage.blobs import BlobStore, plain_name, store_at
from lanebus.bus.storage.folder import Folder
from lanebus.bus.storage.objects import Objects, object_store_at
from lanebus.bus.wire.keys import DEFAULT_NAMESPACE, check_namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ObjectStore

__all__ = ("DirectoryMedia", "ObjectMedia", "media_store_at")

_OBJECTS = "media store"


class _BlobMedia:
    """A `MediaStore` on a blob store."""

    def __init__(self, blobs: BlobStore, name_of: Callable[[str], str]) -> None:
        """Use a blob store. `name_of` returns the name of the blob with a given SHA-256, in the namespace's folder."""
        self._blobs, self._name_of = blobs, name_of
        self._folder = plain_name(DEFAULT_NAMESPACE)

    def in_namespace(self, namespace: str) -> Self:
        """See `SharedStore`."""
        store = copy(self)
        store._folder = plain_name(check_namespace(namespace))
        return store

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
        """See `MediaStore`. Calls `head` first, because an object store does not report whether it deleted anything."""
        exists = await self.head(sha256) is not None
        await self._blobs.delete(self._name(sha256))
        return exists

    def _name(self, sha256: str) -> str:
        return f"{self._folder}/{self._name_of(check_sha256(sha256))}"


class DirectoryMedia(_BlobMedia):
    """A `SharedStore` in a directory, with one file per media: `<namespace>/ab/cd/<sha256>`.

    In the folder's name, a character other than a lower-case letter, a digit, `_` and `-` is encoded: `.` is `=2e`.

    A missing directory is created. Only the owner can read the directory and its files. When `put_if_absent` returns,
    the file and its name are on disk. Calls run in worker threads; a cancelled call waits for its thread to end.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        require_instance("path", path, Path, "pass a pathlib.Path")
        super().__init__(Folder(path, "media directory"), lambda sha256: f"{sha256[:2]}/{sha256[2:4]}/{sha256}")


class ObjectMedia(_BlobMedia):
    """A `SharedStore` and `SigningStore` in S3, Google Cloud Storage or Azure.

    It needs the package obstore, in the extra `s3`.

    Media are objects named `<namespace>/sha256/ab/<sha256>` below the store's own prefix, the namespace encoded as for
    `DirectoryMedia`. An object also keeps the MIME type.
    Objects are served as attachments: a browser that opens a signed URL saves the media and never renders untrusted
    content. An obstore store in memory or in a directory has no signed URLs.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Use a store of the package `obstore`. Credentials, time-outs and retries are settings of `store`."""
        self._objects = Objects(store, _OBJECTS)
        super().__init__(self._objects, lambda sha256: f"sha256/{sha256[:2]}/{sha256}")

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Return the store at a URL such as `s3://bucket/prefix`. Does not connect yet.

        Raises:
            MissingExtra: the package `obstore` is not installed.
            SetupError: `obstore` does not know this kind of URL.
        """
        return cls(object_store_at(url, _OBJECTS))

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """See `SigningStore`."""
        return await self._objects.sign(self._name(sha256), timedelta(seconds=seconds))


def media_store_at(place: str) -> DirectoryMedia | ObjectMedia:
    """Return the store at a URL or in a directory. Does not connect or create anything yet.

    Args:
        place: a URL such as `s3://bucket/prefix`, or the path of a directory.

    Raises:
        SetupError: `place` is a URL with an unknown scheme, or one that `obstore` does not support.
        MissingExtra: `place` is a URL, and the package `obstore` is not installed.
    """
    require_text("place", place, is_filled=True)
    return store_at(place, DirectoryMedia, ObjectMedia.from_url)
