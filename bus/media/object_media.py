"""Media in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`.

An object is `sha256/ab/<sha256>` below the store's own prefix. It carries its type, and says that it is an attachment:
a browser that follows a signed URL saves it, and does not show what a stranger may have written for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

from bus.errors import MediaMissing
from bus.media.store import MediaHead, check_sha256, sha256_of, verified
from bus.storage.objects import Objects, object_store_at

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ("ObjectMedia",)

_WHAT = "media store"


class ObjectMedia:
    """See `SigningStore`. A store in memory or in a directory has no signed URLs."""

    def __init__(self, store: ObjectStore) -> None:
        """Takes a store as the package `obstore` makes them, with its credentials, time-outs and retries."""
        self._objects = Objects(store, _WHAT)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """A store by URL: `s3://bucket/prefix`, `gs://…`, `az://…`, `memory:///`. Nothing connects yet.

        Credentials, region and endpoint come from the environment, such as AWS_REGION.

        Raises:
            MissingExtra: the package is not installed.
            SetupError: the URL is none that it knows.
        """
        return cls(object_store_at(url, _WHAT))

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`. Sent in one piece, which a server takes whole or not at all."""
        sha256 = await sha256_of(data)
        await self._objects.put_if_absent(_path(sha256), data, content_type=mime_type)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        data = await self._objects.get(_path(sha256))
        if data is None:
            raise MediaMissing(sha256)
        return await verified(sha256, data)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        head = await self._objects.head(_path(sha256))
        return None if head is None else MediaHead(head.size_bytes, head.content_type)

    async def delete(self, sha256: str) -> bool:
        """See `MediaStore`. It asks first: these services do not tell whether there was an object."""
        is_there = await self._objects.head(_path(sha256)) is not None
        await self._objects.delete(_path(sha256))
        return is_there

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """See `SigningStore`."""
        return await self._objects.sign(_path(sha256), timedelta(seconds=seconds))


def _path(sha256: str) -> str:
    return f"sha256/{check_sha256(sha256)[:2]}/{sha256}"
