"""Media stores. A store keeps media under their SHA-256, and messages refer to media by this SHA-256."""

from lanebus.bus.media.agentflow import KeyedMedia, as_agentflow
from lanebus.bus.media.blob_media import DirectoryMedia, ObjectMedia, media_store_at
from lanebus.bus.media.files import media_from_file
from lanebus.bus.media.redis_media import RedisMedia
from lanebus.bus.media.resolve import media_of, resolve_media
from lanebus.bus.media.store import MediaHead, MediaStore, SharedStore, SigningStore

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
