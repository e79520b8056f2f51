"""Store large media once under their SHA-256, refer to them in entries, and load them for requests to models.

By default media are stored on the bus's own server:

| key | type | holds | deleted by |
|---|---|---|---|
| ns:media:<sha256> | string | the bytes as they are | `Session.erase` with `media=True` |

`store.py` also stores media in a directory or an object store instead. `resolve.py` moves the media of messages.

Media are never deleted automatically. Sessions share media of the same content, and references are not counted. So
closing or trimming a session leaves its media in the store.

A reader of a log can load all media that the log refers to. So a media store needs the same access control as the log.
"""
