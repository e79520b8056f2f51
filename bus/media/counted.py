"""Count the media of a namespace, so that they are limited together with its messages.

The server keeps the size of each stored media and their sum, also for media in a directory or an object store. Media
are counted before they are stored: an interrupted call may leave media counted that are not stored, never the reverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from lanebus.bus.errors import BusError, OverLimit
from lanebus.bus.log.script import Script
from lanebus.bus.media.store import MediaHead, MediaStore, SigningStore, check_sha256, sha256_of

if TYPE_CHECKING:
    from lanebus.bus.log.log import Log

__all__ = ("MediaQuota", "counted_media")

_MEDIA = Script("media", shares=("damage",))


class MediaQuota(Protocol):
    """The limit on the bytes of a namespace, see `Limits.namespace_bytes`."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the namespace, as far as this process knows."""
        ...

    @property
    def limit_bytes(self) -> int:
        """Maximum number of bytes."""
        ...

    async def refresh(self) -> None:
        """Count again if the last count is old."""
        ...

    def admit_bytes(self, size_bytes: int) -> bool:
        """Return whether there is room for some bytes. If so, add them to the count."""
        ...

    def release_bytes(self, size_bytes: int) -> None:
        """Subtract bytes that were not stored, or are no longer stored."""
        ...


class _CountedMedia:
    """A `MediaStore` that counts what it stores and deletes, and refuses media beyond the limit."""

    def __init__(self, store: MediaStore, log: Log, quota: MediaQuota) -> None:
        self._store, self._log, self._quota = store, log, quota

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`.

        Raises:
            OverLimit: the namespace has no room for the media. Nothing was stored.
        """
        sha256 = await sha256_of(data)
        await self._quota.refresh()
        is_new = await self._count(sha256, len(data))
        try:
            return await self._store.put_if_absent(data, mime_type=mime_type)
        except BusError:
            if is_new and await self._store.head(sha256) is None:
                await self._forget(sha256)
            raise

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        return await self._store.get(sha256)

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        return await self._store.head(sha256)

    async def delete(self, sha256: str) -> bool:
        """See `MediaStore`."""
        was_stored = await self._store.delete(check_sha256(sha256))
        await self._forget(sha256)  # afterwards: media that could not be deleted stay counted
        return was_stored

    async def _count(self, sha256: str, size_bytes: int) -> bool:
        """Count media, and return whether they were not counted before."""
        has_room = self._quota.admit_bytes(size_bytes)
        changed = 0
        try:
            words = (sha256, size_bytes, "1" if has_room else "")
            changed = cast("int", await self._log.run(_MEDIA, (self._log.keys.media_sizes(),), words))
        finally:
            if has_room and changed != 1:
                self._quota.release_bytes(size_bytes)
        if changed == -1:
            raise OverLimit("", "namespace", self._quota.size_bytes, self._quota.limit_bytes)
        return changed == 1

    async def _forget(self, sha256: str) -> None:
        size_bytes = await self._log.run(_MEDIA, (self._log.keys.media_sizes(),), (sha256, "", ""))
        self._quota.release_bytes(cast("int", size_bytes))


class _CountedSigningMedia(_CountedMedia):
    """A `SigningStore` that counts what it stores."""

    def __init__(self, store: SigningStore, log: Log, quota: MediaQuota) -> None:
        super().__init__(store, log, quota)
        self._signing = store

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """See `SigningStore`."""
        return await self._signing.sign(sha256, seconds=seconds)


def counted_media(store: MediaStore, log: Log, quota: MediaQuota) -> MediaStore:
    """Return a store that counts what `store` stores. It signs URLs if `store` does."""
    if isinstance(store, SigningStore):
        return _CountedSigningMedia(store, log, quota)
    return _CountedMedia(store, log, quota)
