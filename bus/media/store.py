"""What a media store is: bytes by their SHA-256. What is under an address never changes, so putting twice puts once."""

import hashlib
import re
from typing import NamedTuple, Protocol, runtime_checkable

from anyio.to_thread import run_sync

from lanebus.bus.errors import InvalidMediaKey, MediaDamaged

__all__ = ("MediaHead", "MediaStore", "SigningStore", "check_sha256", "sha256_of", "verified")

_SHA256 = re.compile(r"[0-9a-f]{64}")

_LARGE_BYTES = 1_048_576
"""hashing this much takes about a millisecond: more of it would hold up the event loop"""


class MediaHead(NamedTuple):
    """What a store knows of media without reading them."""

    size_bytes: int
    mime_type: str | None = None
    """None where the store keeps none; the reference in the log has it"""


class MediaStore(Protocol):
    """A place for media. Any number of processes may write the same at once; nobody sees a part of it."""

    async def put_if_absent(self, data: bytes, *, mime_type: str | None = None) -> str:
        """Keep these bytes, and give their SHA-256 once they are safe. Where they are already, nothing is done.

        Cancelling it leaves all of them or nothing.

        Args:
            mime_type: for stores that hand their media to others.

        Raises:
            MediaTooLarge: the store does not take so much.
            Unavailable: the store cannot be reached, or refused.
            SetupError: it does not let us in.
        """
        ...

    async def get(self, sha256: str) -> bytes:
        """The bytes, verified.

        Raises:
            InvalidMediaKey: this is no SHA-256.
            MediaMissing: there are none.
            MediaDamaged: what is there is something else.
            Unavailable, SetupError: as for `put_if_absent`.
        """
        ...

    async def head(self, sha256: str) -> MediaHead | None:
        """What is known of media without reading them; None if they are not there.

        Raises:
            InvalidMediaKey, Unavailable, SetupError: as for `get`.
        """
        ...

    async def delete(self, sha256: str) -> bool:
        """Remove media, whoever still names them; nothing happens where there are none.

        Returns:
            Whether there were any. Of several calls at the same time more than one may be told so.

        Raises:
            InvalidMediaKey, Unavailable, SetupError: as for `get`.
        """
        ...


@runtime_checkable
class SigningStore(MediaStore, Protocol):
    """A store that others can read from by URL."""

    async def sign(self, sha256: str, *, seconds: float) -> str | None:
        """A URL under which anybody may read the media for so long; None where this store has no such URLs.

        Whether they are there is not looked at.

        Raises:
            InvalidMediaKey, Unavailable, SetupError: as for `get`.
        """
        ...


def check_sha256(sha256: str) -> str:
    """The address, if it is one.

    Raises:
        InvalidMediaKey: it is not 64 lower-case hex digits.
    """
    if _SHA256.fullmatch(sha256) is None:
        raise InvalidMediaKey(sha256)
    return sha256


async def sha256_of(data: bytes) -> str:
    """The address of these bytes."""
    return await run_sync(_digest, data) if len(data) > _LARGE_BYTES else _digest(data)


async def verified(sha256: str, data: bytes) -> bytes:
    """The bytes, if they are those of the address.

    Raises:
        MediaDamaged: they are not.
    """
    found = await sha256_of(data)
    if found != sha256:
        raise MediaDamaged(sha256, found)
    return data


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
