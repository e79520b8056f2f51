"""Move large inline media of messages to the media store before the messages are published.

The media are stored before the entry that refers to them is appended. If the publish then fails, the media stay in the
store without a reference. This is harmless, and a repeat of the publish uses them.
"""

import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, overload

import anyio

from lanebus.bus.errors import OverLimit
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
from lanebus.bus.messages.llm import LlmMessage
from lanebus.bus.messages.media import INLINE_LIMIT_BYTES, MediaRef, sniff

__all__ = ("Offload", "offloaded")

T = TypeVar("T")
M = TypeVar("M", bound=LlmMessage)


class Offload:
    """Stores the large media of messages before a publish, and keeps the order of publishes to each session."""

    def __init__(self, store: MediaStore, limit_bytes: int | None) -> None:
        """Use a media store.

        Args:
            store: the store to move media to.
            limit_bytes: smallest decoded size of media to store. None leaves all media inline.
        """
        self._store = store
        self._limit_bytes = sys.maxsize if limit_bytes is None else limit_bytes
        self.body_bytes = -(-self._limit_bytes // 3) * 4
        """A message with shorter JSON holds no media to store: the base64 text of such media is at least this long."""
        self.turns: dict[str, anyio.Lock] = {}
        """The sessions with a publish that is still storing media. Later publishes to them must use `turn`."""

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncGenerator[None, None]:
        """Let only one caller at a time publish to a session, for the length of the block.

        Callers enter in the order of their calls.

        Raises:
            OverLimit: the block stored media beyond the limit of the namespace.
        """
        lock = self.turns.setdefault(session, anyio.Lock(fast_acquire=True))
        try:
            async with lock:
                yield
        except OverLimit as full:  # the store does not know for which session it stores
            raise OverLimit(session, full.scope, full.size_bytes, full.limit_bytes) from None
        finally:
            # A locked lock is held by another caller, and more callers may wait for it. A caller that was cancelled in
            # its wait may get here after a later caller has added a new lock, which must stay.
            if not lock.locked() and self.turns.get(session) is lock:
                del self.turns[session]

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
    """Store the large inline media of a message, and return the message with references in place of these media.

    Media are images, audio, videos and video thumbnails, documents and data blocks, also nested in tool results at
    any depth. A reference has the exact size and SHA-256 of the media, and keeps the other fields of the inline media.

    Args:
        message: the message.
        store: the store for the media. Media that are already stored are not sent again.
        limit_bytes: smallest decoded size of media to store. Smaller media stay inline.

    Raises:
        MediaDamaged: media do not have the SHA-256 in their `sha256` field.
        MediaTooLarge: media are over the store's size limit.
        OverLimit: the namespace has no room for the media. Only the store of a bus raises it.
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
    return media.model_copy(
        update={"kind": "sha256", "sha256": sha256, "size_bytes": len(data), "mime_type": mime_type, "data": None}
    )
