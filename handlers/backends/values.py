"""Bytes in the JSON of an entry: inline as base64, or in the media store under their SHA-256."""

from base64 import b64decode, b64encode
from binascii import Error

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.media.store import MediaStore
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds

__all__ = ("load_value", "store_value")


async def store_value(store: MediaStore, data: bytes, *, bounds: BackendBounds = DEFAULT_BACKEND_BOUNDS) -> JsonValue:
    """Return JSON from which `load_value` reads the bytes.

    Large data are durable in the media store when the call returns. If the entry is then not appended, they stay there,
    which is harmless.

    Args:
        store: the session's media store, `session.media`.
        data: the bytes.
        bounds: up to `inline_bytes` are part of the JSON.

    Raises:
        MediaTooLarge: the data are over the store's limit.
        Unavailable: the store cannot be reached.
    """
    if len(data) <= bounds.inline_bytes:
        return b64encode(data).decode()
    return {"sha256": await store.put_if_absent(data), "sizeBytes": len(data)}


async def load_value(store: MediaStore, value: JsonValue) -> bytes:
    """Return the bytes that `store_value` stored.

    Raises:
        DecodeError: `value` has another form.
        MediaMissing: the media store no longer has the data.
        MediaDamaged: the stored data have another SHA-256.
        Unavailable: the store cannot be reached.
    """
    if isinstance(value, str):
        try:
            return b64decode(value, validate=True)
        except (Error, ValueError):  # ValueError: a character outside of ASCII
            raise DecodeError("", "a stored value is not base64") from None
    if isinstance(value, dict) and isinstance(sha256 := value.get("sha256"), str):
        return await store.get(sha256)
    raise DecodeError("", "a stored value is neither a text nor an object with `sha256`")
