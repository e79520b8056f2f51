"""The media store on the bus's own server. A key `ns:media:<sha256>` holds the bytes of media as a string.

Media are as durable as the log. With `appendfsync always` media are on disk before the entry that refers to them.
The server holds all media in memory. If there are many or large media, use another store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lanebus.bus.errors import MediaMissing
from lanebus.bus.media.bounds import DEFAULT_MEDIA_BOUNDS, MediaBounds
from lanebus.bus.media.store import MediaHead, check_sha256, sha256_of, verified
from lanebus.bus.messages.media_checks import require_size

if TYPE_CHECKING:
    from lanebus.bus.servers.pool import Pool
    from lanebus.bus.wire.keys import Keys

__all__ = ("REDIS_MEDIA_LIMIT_BYTES", "RedisMedia")

REDIS_MEDIA_LIMIT_BYTES = 64 * 1_048_576
"""The default size limit. The server blocks while it reads or writes a value, and a value has at most 512 MiB."""


class RedisMedia:
    """A `MediaStore` on the bus's own server. `Bus.open` creates this store if no other store is passed.

    The store has its own connections, so that large media do not delay publishing or reading.

    Args:
        pool: connections to the server.
        keys: the keys of the namespace.
        limit_bytes: size of the largest media to store.
        bounds: how slow a connection may be.
    """

    def __init__(
        self,
        pool: Pool,
        keys: Keys,
        *,
        limit_bytes: int = REDIS_MEDIA_LIMIT_BYTES,
        bounds: MediaBounds = DEFAULT_MEDIA_BOUNDS,
    ) -> None:
        self._pool, self._keys, self._limit_bytes, self._bounds = pool, keys, limit_bytes, bounds

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """See `MediaStore`.

        If the server has no memory left, raise `Refused` with the code OOM. `Refused` is a kind of `Unavailable`.
        """
        del mime_type  # the reference in the entry has the type
        require_size(len(data), limit_bytes=self._limit_bytes)
        sha256 = await sha256_of(data)
        head = await self.head(sha256)
        if head is None or head.size_bytes != len(data):
            # NX: a concurrent writer of this key has the same bytes. A value of another size is damaged: replace it.
            condition = ("NX",) if head is None else ()
            seconds = len(data) / self._bounds.slowest_bytes_a_second
            await self._pool.call("SET", self._keys.media(sha256), data, *condition, more_seconds=seconds)
        return sha256

    async def get(self, sha256: str) -> bytes:
        """See `MediaStore`."""
        head = await self.head(sha256)
        if head is None:
            raise MediaMissing(sha256)
        seconds = head.size_bytes / self._bounds.slowest_bytes_a_second
        data = cast("bytes | None", await self._pool.call("GET", self._keys.media(sha256), more_seconds=seconds))
        return await verified(sha256, data or b"")

    async def head(self, sha256: str) -> MediaHead | None:
        """See `MediaStore`."""
        key = self._keys.media(check_sha256(sha256))
        size_bytes = cast("int", await self._pool.call("STRLEN", key))
        # STRLEN is 0 for a missing key and for an empty value.
        return MediaHead(size_bytes) if size_bytes or await self._pool.call("EXISTS", key) else None

    async def delete(self, sha256: str) -> bool:
        """See `MediaStore`."""
        return bool(await self._pool.call("UNLINK", self._keys.media(check_sha256(sha256))))
