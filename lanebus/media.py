"""Media stores. A store keeps media under their SHA-256, and messages refer to media by this SHA-256."""

from lanebus.bus.media.resolve import KeyedMedia, as_agentflow, media_from_file, media_of, resolve_media
from lanebus.bus.media.store import (
    DirectoryMedia,
    MediaHead,
    MediaStore,
    ObjectMedia,
    RedisMedia,
    SharedStore,
    SigningStore,
    media_store_at,
)

__all__ = (
    "DirectoryMedia",
    "KeyedMedia",
    "MediaHead",
    "MediaStore",
    "ObjectMedia",
    "RedisMedia",
    "SharedStore",
    "SigningStore",
    "as_agentflow",
    "media_from_file",
    "media_of",
    "media_store_at",
    "resolve_media",
)
