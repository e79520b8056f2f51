"""Values as a thread's entries hold them: what a serializer of LangGraph wrote, inline or in the media store."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b, sha256
from math import isfinite
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from pydantic import JsonValue

from lanebus.bus.errors import MessageError
from lanebus.bus.media.store import MediaStore
from lanebus.bus.messages.json_parser import DEPTH_LIMIT, parse_json
from lanebus.handlers.backends.bounds import BackendBounds
from lanebus.handlers.backends.langgraph.entries import Packed, ValueStored, Version
from lanebus.handlers.backends.langgraph.thread import Namespace, Value
from lanebus.handlers.backends.values import load_value

__all__ = ("Changed", "NotStored", "Packing", "PlainValues", "load_channel", "unpack")


class NotStored(Exception):
    """Values are too large for an entry and are not in the media store yet."""


class Packing:
    """Packs the values of one append. Large values are collected, to be stored before the append is tried again."""

    def __init__(self, serde: SerializerProtocol, bounds: BackendBounds) -> None:
        self._serde, self._bounds = serde, bounds
        self._stored, self._missing = set[str](), dict[str, bytes]()
        self._room = 0

    def begin(self) -> None:
        """Forget what was packed: the append is decided again."""
        self._missing.clear()
        self._room = self._bounds.batch_bytes

    def pack(self, value: object) -> Packed:
        """Return the value as an entry holds it."""
        kind, data = self._serde.dumps_typed(value)
        if len(data) <= min(self._bounds.inline_bytes, self._room):
            self._room -= len(data)
            return Packed(type=kind, value=b64encode(data).decode())
        name = sha256(data).hexdigest()
        if name not in self._stored:
            self._missing[name] = data
        return Packed(type=kind, value={"sha256": name, "sizeBytes": len(data)})

    def require_stored(self) -> None:
        """Raise NotStored if a packed value has to be stored first."""
        if self._missing:
            raise NotStored

    async def store(self, media: MediaStore) -> None:
        """Store the values that are missing."""
        for name, data in [*self._missing.items()]:
            await media.put_if_absent(data)
            self._stored.add(name)


class Changed:
    """A channel with a new value."""

    def __init__(self, serde: SerializerProtocol, channel: str, version: Version, value: object) -> None:
        self.channel, self.value, self._version = channel, value, version
        self.digests = [_digest(serde, item) for item in cast("list[object]", value)] if type(value) is list else None
        """a digest of each element of a list; None if the value is no list"""

    def entry(self, namespace: str, stored: Namespace, packing: Packing) -> ValueStored:
        """Return the entry of the value. Of a list, it holds what follows the elements of the newest stored version."""
        packed = self.value
        newest = stored.newest.get(self.channel)
        keep, after = 0, None
        if self.digests is not None and newest is not None and newest.version != self._version:
            keep = _common(newest.digests, self.digests)
            after = newest.version if keep else None
            packed = cast("list[object]", self.value)[keep:]
        return ValueStored(
            namespace=namespace,
            channel=self.channel,
            version=self._version,
            packed=packing.pack(packed),
            after=after,
            keep=keep,
            digests=None if self.digests is None else tuple(self.digests[keep:]),
        )


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of first elements that two sequences share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _digest(serde: SerializerProtocol, value: object) -> str:
    """Return a digest of a value. Values with the same digest have the same bytes."""
    kind, data = serde.dumps_typed(value)
    return urlsafe_b64encode(blake2b(data, digest_size=15, person=kind.encode()[:16]).digest()).decode()


async def unpack(serde: SerializerProtocol, media: MediaStore, packed: Packed) -> Any:
    """Return the value. Raises the errors of `load_value`."""
    return serde.loads_typed((packed.type, await load_value(media, packed.value)))


async def load_channel(serde: SerializerProtocol, media: MediaStore, value: Value) -> object:
    """Return the value of a channel. Raises the errors of `load_value`."""
    if not value.is_list:
        return await unpack(serde, media, value.packed)
    parts = [(await unpack(serde, media, packed), taken) for packed, taken in value.parts()]
    return [item for part, taken in reversed(parts) for item in part[:taken]]


class PlainValues:
    """Reads the imported values of one checkpoint as plain JSON, up to a number of bytes in all.

    No serializer of LangGraph sees the bytes, and no class is made of them. An object is shown as its constructor and
    the arguments: `{"constructor": […]}`. A value that is too large or cannot be read is a note `{"notShown": …}`.
    """

    def __init__(self, media: MediaStore, bounds: BackendBounds) -> None:
        self._media, self._limit = media, bounds.imported_bytes
        self._room = self._limit

    async def read(self, packed: Packed) -> JsonValue:
        """Return a value. Raises Unavailable if the media store cannot be reached."""
        try:
            data = await load_value(self._media, packed.value)
            if len(data) > self._room:
                return {"notShown": f"the imported values are over the limit of {self._limit} bytes"}
            self._room -= len(data)
            match packed.type:
                case "null":
                    return None
                case "bytes" | "bytearray":
                    return b64encode(data).decode()
                case "json":
                    return parse_json(data)
                case "msgpack":
                    return _plain(_unpacked(data, 0), 0)
                case other:
                    return {"notShown": f"{len(data)} bytes of type {other[:100]}"}
        except (MessageError, ValueError, TypeError, RecursionError) as error:
            return {"notShown": f"not readable: {error}"[:500]}

    async def channel(self, value: Value) -> JsonValue:
        """Return the value of a channel. Raises Unavailable if the media store cannot be reached."""
        parts = [(await self.read(packed), taken) for packed, taken in value.parts()]
        if len(parts) == 1:
            return parts[0][0]
        return [
            item for part, taken in reversed(parts) for item in (part[:taken] if isinstance(part, list) else [part])
        ]


def _unpacked(data: bytes, depth: int) -> object:
    def extension(code: int, inner: bytes) -> object:
        if depth >= DEPTH_LIMIT:
            raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
        match code:
            case 0 | 1 | 2 | 3 | 4 | 5:  # an object, as LangGraph writes it
                return {"constructor": _unpacked(inner, depth + 1)}
            case 7:  # the value of a delta channel
                return _unpacked(inner, depth + 1)
            case _:
                return {"extension": [code, len(inner)]}

    return cast("object", ormsgpack.unpackb(data, ext_hook=extension, option=ormsgpack.OPT_NON_STR_KEYS))


def _plain(value: object, depth: int) -> JsonValue:
    if depth > DEPTH_LIMIT:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {str(key): _plain(each, depth + 1) for key, each in cast("dict[object, object]", value).items()}
        case list() | tuple():
            return [_plain(each, depth + 1) for each in cast("Sequence[object]", value)]
        case _:
            return str(value)[:500]
