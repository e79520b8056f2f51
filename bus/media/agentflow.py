"""Media references in agentflow's form, `agentflow://media/<key>`, on top of a media store.

Source: the second graph format (see `bus/messages`). In that format, keys are random, and the declared checksums are
never computed. Here a key is the beginning of the SHA-256, so the same media always get the same key.
"""

import re
from collections.abc import MutableMapping

from lanebus.bus.errors import InvalidMediaKey, MediaMissing, require_instance, require_methods, require_text
from lanebus.bus.media.store import MediaStore
from lanebus.bus.messages.media import MediaRef, sniff

__all__ = ("KeyedMedia", "as_agentflow", "key_of")

_PREFIX = "agentflow://media/"
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEY_LENGTH = 32


class KeyedMedia:
    """Stores and loads media under agentflow keys.

    The caller must keep the mapping `keys`, because the media store knows media only by their SHA-256.
    """

    def __init__(self, store: MediaStore, keys: MutableMapping[str, MediaRef] | None = None) -> None:
        """Use a media store.

        Args:
            store: the store that holds the bytes.
            keys: mapping from key to reference, to which `put` adds. None starts with an empty mapping.
        """
        require_methods("store", store, ("get", "put_if_absent"), "pass a media store, such as `bus.media`")
        self._store = store
        self.keys: MutableMapping[str, MediaRef] = {} if keys is None else keys

    async def put(self, data: bytes, mime_type: str | None = None) -> str:
        """Store bytes and return their key.

        Args:
            data: the bytes.
            mime_type: MIME type of the bytes. None detects the type from the first bytes; an unknown type becomes
                `application/octet-stream`.

        Raises:
            BusError: as for `MediaStore.put_if_absent`.
        """
        known = mime_type or sniff(data) or "application/octet-stream"
        sha256 = await self._store.put_if_absent(data, mime_type=known)
        key = sha256[:_KEY_LENGTH]
        self.keys[key] = MediaRef(kind="sha256", sha256=sha256, mime_type=known, size_bytes=len(data))
        return key

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return the bytes under a key, and their MIME type.

        Raises:
            InvalidMediaKey: `key` does not match `[A-Za-z0-9_-]{1,64}`.
            MediaMissing: `key` is not in `keys`.
            BusError: as for `MediaStore.get`.
        """
        if (media := self.keys.get(_checked(key))) is None:
            raise MediaMissing(key)
        data = await self._store.get(media.sha256 or "")
        return data, media.mime_type or sniff(data) or "application/octet-stream"


def as_agentflow(media: MediaRef, key: str | None = None) -> MediaRef:
    """Return a reference with an `agentflow://media/<key>` URL in place of its SHA-256.

    Args:
        media: the reference. A reference that does not refer to a media store is returned unchanged.
        key: the key to use. None means the first 32 digits of the SHA-256.

    Raises:
        InvalidMediaKey: `key` does not match `[A-Za-z0-9_-]{1,64}`.
    """
    require_instance("media", media, MediaRef, "pass a MediaRef")
    require_text("key", key, is_optional=True)
    if media.kind != "sha256":
        return media
    url = _PREFIX + _checked(key or (media.sha256 or "")[:_KEY_LENGTH])
    return media.model_copy(update={"kind": "url", "url": url})


def key_of(url: str) -> str:
    """Return the key in an `agentflow://media/<key>` URL.

    Raises:
        InvalidMediaKey: the URL does not have this form.
    """
    if not url.startswith(_PREFIX):
        raise InvalidMediaKey(url)
    return _checked(url.removeprefix(_PREFIX))


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise InvalidMediaKey(key)
    return key
