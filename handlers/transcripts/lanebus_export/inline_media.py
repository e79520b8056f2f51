"""Put the stored media of a message inline for an export, so that the import can store these media again."""

from collections.abc import Iterable, Mapping
from typing import TypeVar, overload

from lanebus.bus.media.resolve import media_of, resolve_media
from lanebus.bus.media.store import MediaStore
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
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.transcripts.lines import LINE_LIMIT_BYTES

__all__ = ("with_media",)

CARRIED_LIMIT_BYTES = LINE_LIMIT_BYTES // 2
"""Maximum number of bytes of inline media per message, before base64. An import refuses lines longer than
`LINE_LIMIT_BYTES`."""

M = TypeVar("M", bound=LlmMessage)


async def with_media(message: M, store: MediaStore) -> tuple[M, tuple[str, ...]]:
    """Return the message with its stored media inline, and the SHA-256 of each medium that is missing or too large.

    If the returned message is published to another bus, that bus stores the media again. The new entry equals the
    original.

    Raises:
        Unavailable: the store cannot be reached.
        SetupError: the store refuses access.
    """
    wanted = [media.sha256 for media in media_of(message) if media.kind == "sha256" and media.sha256]
    if not wanted:
        return message, ()
    loaded = await resolve_media([message], store, limit_bytes=CARRIED_LIMIT_BYTES)
    missing = tuple(dict.fromkeys(digest for digest in wanted if digest not in loaded))
    return message.model_copy(update={"content": _inlined(message.content, loaded)}), missing


def _inlined(content: Iterable[Block], loaded: Mapping[str, MediaRef]) -> tuple[Block, ...]:
    return tuple(_block(block, loaded) for block in content)


def _block(block: Block, loaded: Mapping[str, MediaRef]) -> Block:
    match block:
        case ToolResultBlock(content=content):
            return block.model_copy(update={"content": _inlined(content, loaded)})
        case VideoBlock(media=media, thumbnail=thumbnail):
            return block.model_copy(update={"media": _media(media, loaded), "thumbnail": _media(thumbnail, loaded)})
        case ImageBlock() | AudioBlock() | DocumentBlock():
            return block.model_copy(update={"media": _media(block.media, loaded)})
        case DataBlock():
            return block.model_copy(update={"media": _media(block.media, loaded)})
        case _:
            return block


@overload
def _media(media: MediaRef, loaded: Mapping[str, MediaRef]) -> MediaRef: ...
@overload
def _media(media: MediaRef | None, loaded: Mapping[str, MediaRef]) -> MediaRef | None: ...
def _media(media: MediaRef | None, loaded: Mapping[str, MediaRef]) -> MediaRef | None:
    """Put media inline. Other fields of the reference are kept. Storing the media again checks the SHA-256."""
    inline = loaded.get(media.sha256 or "") if media is not None and media.kind == "sha256" else None
    return media.model_copy(update={"kind": "data", "data": inline.data}) if media and inline else media
