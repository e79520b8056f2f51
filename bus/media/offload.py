"""Move large inline media of messages to the media store before they are published. The entries refer to them.

The media are stored before the entry is appended. If the publish then fails, they stay in the store without a
reference. That is harmless, and a repeat uses them.
"""

import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, overload

import anyio

from lanebus.bus.media.store import MediaStore, verified
from lanebus.bus.messages.content import (
    AudioBlock,
    Block,
    DataBlock,
    DocumentBlock,
    ImageBlock,
    ToolResultBlock,
    VideoBlock,
)
from lanebus.bus.messages.media import INLINE_LIMIT_BYTES, MediaRef, sniff
from lanebus.bus.messages.message import LlmMessage

__all__ = ("Offload", "offloaded")

T = TypeVar("T")
M = TypeVar("M", bound=LlmMessage)


class Offload:
    """Stores the large media of messages, and keeps the order of publishes to a session meanwhile."""

    def __init__(self, store: MediaStore, limit_bytes: int | None) -> None:
        """Set the store, and the decoded size from which media are moved to it; None leaves all media inline."""
        self._store = store
        self._limit_bytes = sys.maxsize if limit_bytes is None else limit_bytes
        self.body_bytes = -(-self._limit_bytes // 3) * 4
        """a message with less JSON than this holds no media of that size: their base64 text is at least as long"""
        self.turns: dict[str, anyio.Lock] = {}
        """sessions with a publish that still stores its media; later publishes must wait for their `turn`"""

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Publish to a session alone during the block. Callers enter in the order they came."""
        lock = self.turns.setdefault(session, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # otherwise another caller waits for it or holds it
                self.turns.pop(session, None)

    async def lightened(self, messages: Sequence[T]) -> list[T]:
        """Return the messages with references in place of their large media.

        Raises:
            BusError: as for `offloaded`.
        """
        return [await self._lightened(message) for message in messages]

    async def _lightened(self, message: T) -> T:
        if not isinstance(message, LlmMessage):
            return message
        return await offloaded(message, self._store, limit_bytes=self._limit_bytes)


async def offloaded(message: M, store: MediaStore, *, limit_bytes: int = INLINE_LIMIT_BYTES) -> M:
    """Return the message with its large inline media stored, and references in their place.

    This covers images, audio, videos and their thumbnails, documents and data blocks, also nested in tool results at
    any depth. A reference keeps the other fields of its media, and has their exact size and SHA-256.

    Args:
        message: the message.
        store: where to put the media. Media that it has already are not sent again.
        limit_bytes: decoded size from which media are moved.

    Raises:
        MediaDamaged: media have another SHA-256 than their `sha256` field says.
        MediaTooLarge: media are over the store's size limit.
        Unavailable: the store cannot be reached.
        SetupError: the store refused access.
    """
    content = await _blocks(message.content, store, limit_bytes)
    return message if content is None else message.model_copy(update={"content": content})


async def _blocks(content: Iterable[Block], store: MediaStore, limit_bytes: int) -> tuple[Block, ...] | None:
    """Return the changed blocks, or None if none changed."""
    before = tuple(content)
    after = tuple([await _block(block, store, limit_bytes) for block in before])
    return None if all(new is old for new, old in zip(after, before, strict=True)) else after


async def _block(block: Block, store: MediaStore, limit_bytes: int) -> Block:
    match block:
        case ToolResultBlock():
            content = await _blocks(block.content, store, limit_bytes)
            return block if content is None else block.model_copy(update={"content": content})
        case VideoBlock():
            media = await _media(block.media, store, limit_bytes)
            thumbnail = await _media(block.thumbnail, store, limit_bytes)
            if media is block.media and thumbnail is block.thumbnail:
                return block
            return block.model_copy(update={"media": media, "thumbnail": thumbnail})
        case ImageBlock() | AudioBlock() | DocumentBlock():
            media = await _media(block.media, store, limit_bytes)
            return block if media is block.media else block.model_copy(update={"media": media})
        case DataBlock():
            data = await _media(block.media, store, limit_bytes)
            return block if data is block.media else block.model_copy(update={"media": data})
        case _:
            return block


@overload
async def _media(media: MediaRef, store: MediaStore, limit_bytes: int) -> MediaRef: ...
@overload
async def _media(media: MediaRef | None, store: MediaStore, limit_bytes: int) -> MediaRef | None: ...
async def _media(media: MediaRef | None, store: MediaStore, limit_bytes: int) -> MediaRef | None:
    if media is None or media.kind != "data" or media.inline_size_bytes < limit_bytes:
        return media
    data = media.decoded()
    if media.sha256 is not None:
        await verified(media.sha256, data)
    mime_type = media.mime_type or sniff(data)
    sha256 = await store.put_if_absent(data, mime_type=mime_type)
    stored = {"kind": "sha256", "sha256": sha256, "size_bytes": len(data), "mime_type": mime_type, "data": None}
    return media.model_copy(update=stored)
