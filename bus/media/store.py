"""Store media under their SHA-256: the protocols of stores, and the stores on the server, in a folder and in a bucket.

`Offload` moves large inline media to the store before their messages are published.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar, cast, overload, runtime_checkable

import anyio

from lanebus.bus.concurrency import run_in_thread
from lanebus.bus.errors import (
    BusError,
    InvalidMediaKey,
    MediaDamaged,
    MediaMissing,
    OverLimit,
    check_bounds,
    require_instance,
    require_text,
)
from lanebus.bus.log.log import Script
from lanebus.bus.messages.content import (
    INLINE_LIMIT_BYTES,
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ImageBlock,
    MediaRef,
    ToolResultBlock,
    VideoBlock,
    require_size,
    sniff,
)
from lanebus.bus.messages.message import LlmMessage
from lanebus.bus.storage.blobs import BlobStore, Folder, Objects, object_store_at, plain_name, store_at
from lanebus.bus.wire.keys import DEFAULT_NAMESPACE, check_namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import ObjectStore

    from lanebus.bus.log.log import Log
    from lanebus.bus.servers.connection import Pool
    from lanebus.bus.wire.keys import Keys


_SHA256 = re.compile(r"[0-9a-f]{64}")

_LARGE_BYTES = 1_048_576
"""Larger data is hashed in a thread, so that it does not block the event loop. Hashing this much takes about a
millisecond."""


class MediaHead(NamedTuple):
    """The size and type of stored media."""

    size_bytes: int
    mime_type: str | None = None
    """MIME type of the media; None if the store does not keep types. The `MediaRef` in a message also has the type"""


class MediaStore(Protocol):
    """A store for media. Several processes may store the same media at once. A reader never sees partial media.

    A store holds the media of one namespace, unless it is a `SharedStore`. Do not pass it to buses of two namespaces:
    each could read and delete the media of the other.
    """

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """Store bytes, if they are not stored yet, and return their SHA-256. When the call returns, the bytes are
        durable.

        If the call is cancelled, either all bytes are stored or none.

        Args:
            data: the bytes.
            mime_type: MIME type of the bytes, for stores that other programs can read from. None means unknown.

        Raises:
            MediaTooLarge: the data is over the store's size limit.
            Unavailable: the store cannot be reached, or failed.
            SetupError: the store refused access.
        """
        ...

    async def get(self, sha256: str) -> bytes:
        """Return the bytes, after checking their SHA-256.

        Raises:
            InvalidMediaKey: `sha256` is not 64 lower-case hex digits.
            MediaMissing: no media are stored under `sha256`.
            MediaDamaged: the stored bytes have another SHA-256.
            Unavailable: as for `put_if_absent`.
            SetupError: as for `put_if_absent`.
        """
        ...

    async def head(self, sha256: str) -> MediaHead | None:
        """Return the size and type of media without reading them, or None if they are not stored.

        Raises:
            InvalidMediaKey: as for `get`.
            Unavailable: as for `get`.
            SetupError: as for `get`.
        """
        ...

    async def delete(self, sha256: str) -> bool:
        """Delete media, even if entries refer to them. Do nothing if they are not stored.

        Returns:
            Whether the media were stored. Several concurrent calls may return True.

        Raises:
            InvalidMediaKey: as for `get`.
            Unavailable: as for `get`.
            SetupError: as for `get`.
        """
        ...


@runtime_checkable
class SharedStore(MediaStore, Protocol):
    """A media store that several namespaces may share. `Bus.open` uses only the part of the bus's own namespace."""

    def in_namespace(self, namespace: str) -> Self:
        """Return this store for the media of one namespace; no I/O. Before this call, the namespace is `lanebus`.

        Raises:
            InvalidNamespace: `namespace` does not match `[A-Za-z0-9_.:-]{1,64}`.
        """
        ...


@runtime_checkable
class SigningStore(MediaStore, Protocol):
    """A media store that can sign URLs. A signed URL gives access to the media without credentials."""

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """Return a URL from which anyone can read the media, or None if this store has no such URLs.

        Does not check that the media exist.

        Args:
            sha256: SHA-256 of the media.
            seconds: how long the URL is valid.

        Raises:
            InvalidMediaKey: as for `get`.
            Unavailable: as for `get`.
            SetupError: as for `get`.
        """
        ...


def check_sha256(sha256: str) -> str:
    """Return `sha256` if it has the form of a SHA-256.

    Raises:
        InvalidMediaKey: `sha256` is not 64 lower-case hex digits.
    """
    require_text("sha256", sha256)
    if _SHA256.fullmatch(sha256) is None:
        raise InvalidMediaKey(sha256)
    return sha256


async def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of bytes. Large data is hashed in a thread."""
    return await run_in_thread(partial(_digest, data)) if len(data) > _LARGE_BYTES else _digest(data)


async def verified(sha256: str, data: bytes) -> bytes:
    """Return `data` if its SHA-256 is `sha256`.

    Raises:
        MediaDamaged: the SHA-256 of `data` is different.
    """
    found = await sha256_of(data)
    if found != sha256:
        raise MediaDamaged(sha256, found)
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Move large inline media of messages to the media store before the messages are published.
#
# The media are stored before the entry that refers to them is appended. If the publish then fails, the media stay in
# the store without a reference. This is harmless, and a repeat of the publish uses them.

T = TypeVar("T")
M = TypeVar("M", bound=LlmMessage)


class Offload:
    """Stores the large media of messages before a publish, and keeps the order of publishes to each session."""

    def __init__(self, store: MediaStore, limit_bytes: int | None) -> None:
        """Use a media store.

        Args:
            store: the store to move media to.
            limit_bytes: smallest decoded size of media to store. None leaves all media inline.
        """
        self._store = store
        self._limit_bytes = sys.maxsize if limit_bytes is None else limit_bytes
        self.body_bytes = -(-self._limit_bytes // 3) * 4
        """A message with shorter JSON holds no media to store: the base64 text of such media is at least this long."""
        self.turns: dict[str, anyio.Lock] = {}
        """The sessions with a publish that is still storing media. Later publishes to them must use `turn`."""

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Let only one caller at a time publish to a session, for the length of the block.

        Callers enter in the order of their calls.

        Raises:
            OverLimit: the block stored media beyond the limit of the namespace.
        """
        lock = self.turns.setdefault(session, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        except OverLimit as full:  # the store does not know for which session it stores
            raise OverLimit(session, full.scope, full.size_bytes, full.limit_bytes) from None
        finally:
            # A locked lock is held by another caller, and more callers may wait for it. A caller that was cancelled in
            # its wait may get here after a later caller has added a new lock, which must stay.
            if not lock.locked() and self.turns.get(session) is lock:
                del self.turns[session]

    async def lightened(self, messages: Sequence[T]) -> list[T]:
        """Return the messages with references in place of their large media.

        Raises:
            BusError: as for `offloaded`.
        """
        return [await self._lightened(message) for message in messages]

    async def _lightened(self, message: T) -> T:
        if not isinstance(message, LlmMessage):
            return message
        return await offloaded(message, self._store, limit_bytes=self._limit_bytes)


async def offloaded(message: M, store: MediaStore, *, limit_bytes: int = INLINE_LIMIT_BYTES) -> M:
    """Store the large inline media of a message, and return the message with references in place of these media.

    Media are images, audio, videos and video thumbnails, documents and data blocks, also nested in tool results at
    any depth. A reference has the exact size and SHA-256 of the media, and keeps the other fields of the inline media.

    Args:
        message: the message.
        store: the store for the media. Media that are already stored are not sent again.
        limit_bytes: smallest decoded size of media to store. Smaller media stay inline.

    Raises:
        MediaDamaged: media do not have the SHA-256 in their `sha256` field.
        MediaTooLarge: media are over the store's size limit.
        OverLimit: the namespace has no room for the media. Only the store of a bus raises it.
        Unavailable: the store cannot be reached.
        SetupError: the store refused access.
    """
    content = await _blocks(message.content, store, limit_bytes)
    return message if content is None else message.model_copy(update={"content": content})


async def _blocks(content: Iterable[Block], store: MediaStore, limit_bytes: int) -> tuple[Block, ...] | None:
    """Return the changed blocks, or None if none changed."""
    before = tuple(content)
    after = tuple([await _block(block, store, limit_bytes) for block in before])
    return None if all(new is old for new, old in zip(after, before, strict=True)) else after


async def _block(block: Block, store: MediaStore, limit_bytes: int) -> Block:
    match block:
        case ToolResultBlock():
            content = await _blocks(block.content, store, limit_bytes)
            return block if content is None else block.model_copy(update={"content": content})
        case VideoBlock():
            media = await _media(block.media, store, limit_bytes)
            thumbnail = await _media(block.thumbnail, store, limit_bytes)
            if media is block.media and thumbnail is block.thumbnail:
                return block
            return block.model_copy(update={"media": media, "thumbnail": thumbnail})
        case ImageBlock() | AudioBlock() | DocumentBlock():
            media = await _media(block.media, store, limit_bytes)
            return block if media is block.media else block.model_copy(update={"media": media})
        case DataBlock():
            data = await _media(block.media, store, limit_bytes)
            return block if data is block.media else block.model_copy(update={"media": data})
        case _:
            return block


@overload
async def _media(media: MediaRef, store: MediaStore, limit_bytes: int) -> MediaRef: ...
@overload
async def _media(media: MediaRef | None, store: MediaStore, limit_bytes: int) -> MediaRef | None: ...
async def _media(media: MediaRef | None, store: MediaStore, limit_bytes: int) -> MediaRef | None:
    if media is None or media.kind != "data" or media.inline_size_bytes < limit_bytes:
        return media
    data = media.decoded()
    if media.sha256 is not None:
        await verified(media.sha256, data)
    mime_type = media.mime_type or sniff(data)
    sha256 = await store.put_if_absent(data, mime_type=mime_type)
    return media.model_copy(
        update={"kind": "sha256", "sha256": sha256, "size_bytes": len(data), "mime_type": mime_type, "data": None}
    )


# Count the media of a namespace, so that they are limited together with its messages.
#
# The server keeps the size of each stored media and their sum, also for media in a directory or an object store. Media
# are counted before they are stored: an interrupted call may leave media counted that are not stored, never the
# reverse.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBounds:
    """Bounds of the media store on the bus's own server, and of `resolve_media` with any media store."""

    slowest_bytes_a_second: int = 1_048_576
    """slowest transfer of media, in bytes a second. A slower connection to the bus's own server is treated as dead"""
    loads_at_once: int = 8
    """maximum number of media that `resolve_media` loads at the same time"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.media")


DEFAULT_MEDIA_BOUNDS = MediaBounds()


# The media store on the bus's own server. Media in it are as durable as the log. With `appendfsync always` media are on
# disk before the entry that refers to them. The server holds all media in memory. If there are many or large media, use
# another store.

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


# Media stores in a directory and in an object store. Blob names are built only from checked values.
#
# Media of each namespace are in a folder of their own. So several namespaces may share a directory or a bucket: none
# reads or deletes the media of another.

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
