"""An archive in an object store, S3, Google's or Azure's, by the package obstore: the extra `s3`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from bus.archive.store import FILE_LIMIT_BYTES, check_name
from bus.storage.objects import Objects, object_store_at

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ("ObjectArchive",)

_WHAT = "archive store"


class ObjectArchive:
    """See `ArchiveStore`. An object's path is its name, below the store's own prefix."""

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

    async def put_if_absent(self, name: str, data: bytes) -> None:
        """See `ArchiveStore`. Sent in one piece, which a server takes whole or not at all."""
        await self._objects.put_if_absent(check_name(name), data, content_type="application/gzip")

    async def get(self, name: str) -> bytes | None:
        """See `ArchiveStore`."""
        return await self._objects.get(check_name(name), limit_bytes=FILE_LIMIT_BYTES)

    async def names(self, folder: str) -> list[str]:
        """See `ArchiveStore`."""
        return await self._objects.names(check_name(folder))

    async def delete(self, name: str) -> None:
        """See `ArchiveStore`."""
        await self._objects.delete(check_name(name))

    async def clear(self, folder: str) -> None:
        """See `ArchiveStore`."""
        for name in await self._objects.names(check_name(folder)):
            await self._objects.delete(name)
