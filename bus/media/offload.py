"""Large inline media on their way into the log: the bytes go into the store, and the entry names them.

The store has them before the log does. A publish that fails in between leaves media that no entry names: they are
harmless, and a repeat finds them there.
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
    """Puts the large media of messages into a store, and keeps the publishes of a session in order meanwhile."""

    def __init__(self, store: MediaStore, limit_bytes: int | None) -> None:
        """Takes the decoded size from which on media are not left inline; None leaves all of them there."""
        self._store = store
        self._limit_bytes = sys.maxsize if limit_bytes is None else limit_bytes
        self.body_bytes = -(-self._limit_bytes // 3) * 4
        """a message's JSON of fewer bytes holds no media of that size: base64 alone would take more"""
        self.turns: dict[str, anyio.Lock] = {}
        """sessions to which a publish is still putting its media away: the next has to take a turn behind it"""

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Be the only one that publishes to a session, in the order that callers came."""
        lock = self.turns.setdefault(session, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():  # else another one waits for it, or has it
                self.turns.pop(session, None)

    async def lightened(self, messages: Sequence[T]) -> list[T]:
        """The messages with references in place of their large media.

        Raises:
            BusError: as for `offloaded`.
        """
        return [await self._lightened(message) for message in messages]

    async def _lightened(self, message: T) -> T:
        if not isinstance(message, LlmMessage):
            return message
        return await offloaded(message, self._store, limit_bytes=self._limit_bytes)


async def offloaded(message: M, store: MediaStore, *, limit_bytes: int = INLINE_LIMIT_BYTES) -> M:
    """The message with a reference in place of every inline media of `limit_bytes` and more, decoded.

    That is in images, sounds, videos and their thumbnails, documents and data, also inside of results at any depth. A
    reference keeps all that was known of its media, and says their exact size and SHA-256. Nothing is put twice.

    Raises:
        MediaDamaged: media say of themselves a SHA-256 that they do not have.
        MediaTooLarge: the store does not take so much.
        Unavailable, SetupError: the store cannot be reached, or does not let us in.
    """
    content = await _blocks(message.content, store, limit_bytes)
    return message if content is None else message.model_copy(update={"content": content})


async def _blocks(content: Iterable[Block], store: MediaStore, limit_bytes: int) -> tuple[Block, ...] | None:
    """The blocks as they are to be; None if they are to be as they are."""
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
    found = {"kind": "sha256", "sha256": sha256, "size_bytes": len(data), "mime_type": mime_type, "data": None}
    return media.model_copy(update=found)
