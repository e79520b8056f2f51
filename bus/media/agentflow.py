"""Seed 003's media: `agentflow://media/<key>`, with keys of its own, over a store that goes by content.

Source: seed 003. There a key is random and the checksum is promised but never made; here a key is the beginning of the
SHA-256, so that the same media put again get the same key.
"""

import re
from collections.abc import MutableMapping

from lanebus.bus.errors import InvalidMediaKey, MediaMissing
from lanebus.bus.media.store import MediaStore
from lanebus.bus.messages.media import MediaRef, sniff

__all__ = ("KeyedMedia", "as_agentflow", "key_of")

_PREFIX = "agentflow://media/"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_LENGTH = 32


class KeyedMedia:
    """Media under seed 003's keys. Which key is which media is the caller's to keep: `keys` is theirs."""

    def __init__(self, store: MediaStore, keys: MutableMapping[str, MediaRef] | None = None) -> None:
        """Takes the mapping from key to reference; None begins an empty one."""
        self._store = store
        self.keys: MutableMapping[str, MediaRef] = {} if keys is None else keys

    async def put(self, data: bytes, mime_type: str | None = None) -> str:
        """Keep bytes, and give their key.

        Raises:
            BusError: as for `MediaStore.put_if_absent`.
        """
        known = mime_type or sniff(data) or "application/octet-stream"
        sha256 = await self._store.put_if_absent(data, mime_type=known)
        key = sha256[:_KEY_LENGTH]
        self.keys[key] = MediaRef(kind="sha256", sha256=sha256, mime_type=known, size_bytes=len(data))
        return key

    async def get(self, key: str) -> tuple[bytes, str]:
        """The bytes under a key and their type.

        Raises:
            InvalidMediaKey: this is no key; it was not looked up.
            MediaMissing: nobody knows it.
            BusError: as for `MediaStore.get`.
        """
        if (media := self.keys.get(_checked(key))) is None:
            raise MediaMissing(key)
        data = await self._store.get(media.sha256 or "")
        return data, media.mime_type or sniff(data) or "application/octet-stream"


def as_agentflow(media: MediaRef, key: str | None = None) -> MediaRef:
    """A reference into the store as seed 003 says it; any other is given back as it is.

    Args:
        key: None is the beginning of its SHA-256.

    Raises:
        InvalidMediaKey: this is no key.
    """
    if media.kind != "sha256":
        return media
    url = _PREFIX + _checked(key or (media.sha256 or "")[:_KEY_LENGTH])
    return media.model_copy(update={"kind": "url", "url": url})


def key_of(url: str) -> str:
    """The key in a URL of seed 003's.

    Raises:
        InvalidMediaKey: there is none.
    """
    if not url.startswith(_PREFIX):
        raise InvalidMediaKey(url)
    return _checked(url.removeprefix(_PREFIX))


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise InvalidMediaKey(key)
    return key
