"""Large media: kept once by their SHA-256, named by the log, looked up when a request is built.

| key | type | holds | goes |
|---|---|---|---|
| ns:media:<sha256> | string | the bytes as they are | by `Session.erase`, if asked |

That is the store of a bus that is given no other one; `directory.py` and `object_media.py` say what they keep where.

Nothing is deleted by itself: sessions share what has the same content, and nobody counts who names it. A session that
ends, is trimmed or closed leaves its media where they are; only who erases data by intent removes them, from the store.
Whoever reads a log can ask the store for what it names, so a store is as private as the log.
"""

from bus.media.agentflow import KeyedMedia, as_agentflow
from bus.media.directory import DirectoryMedia
from bus.media.files import media_from_file
from bus.media.object_media import ObjectMedia
from bus.media.offload import offloaded
from bus.media.place import media_store_at
from bus.media.redis_media import RedisMedia
from bus.media.resolve import media_of, resolve_media
from bus.media.store import MediaHead, MediaStore, SigningStore

__all__ = (
    "DirectoryMedia",
    "KeyedMedia",
    "MediaHead",
    "MediaStore",
    "ObjectMedia",
    "RedisMedia",
    "SigningStore",
    "as_agentflow",
    "media_from_file",
    "media_of",
    "media_store_at",
    "offloaded",
    "resolve_media",
)
