"""Large media: kept once by their SHA-256, named by the log, looked up when a request is built.

| key | type | holds | goes |
|---|---|---|---|
| ns:media:<sha256> | string | the bytes as they are | by `Session.erase`, if asked |

That is the store of a bus that is given no other one; `blob_media.py` says what the others keep where.

Nothing is deleted by itself: sessions share what has the same content, and nobody counts who names it. A session that
ends, is trimmed or closed leaves its media where they are; only who erases data by intent removes them, from the store.
Whoever reads a log can ask the store for what it names, so a store is as private as the log.
"""
