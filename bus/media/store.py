"""The protocols of media stores, which hold bytes under their SHA-256. Storing the same bytes again changes nothing."""

import hashlib
import re
from functools import partial
from typing import NamedTuple, Protocol, Self, runtime_checkable

from lanebus.bus.errors import InvalidMediaKey, MediaDamaged, require_text
from lanebus.bus.threads import run_in_thread

__all__ = ("MediaHead", "MediaStore", "SharedStore", "SigningStore", "check_sha256", "sha256_of", "verified")

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
