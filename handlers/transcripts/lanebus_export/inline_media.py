"""A message that takes its media along: what lies in a media store is put inline, to be stored again elsewhere."""

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
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import LlmMessage
from lanebus.handlers.transcripts.lines import LINE_LIMIT_BYTES

__all__ = ("with_media",)

CARRIED_LIMIT_BYTES = LINE_LIMIT_BYTES // 2
"""of one message's media, decoded: its line has to be one that an import takes"""

M = TypeVar("M", bound=LlmMessage)


async def with_media(message: M, store: MediaStore) -> tuple[M, tuple[str, ...]]:
    """The message with its stored media inline, and the digests of those that are not there, or too much for a line.

    A publish elsewhere puts them into the store there, and what is then in the log is what was in this one.

    Raises:
        Unavailable, SetupError: the store cannot be reached, or does not let us in.
    """
    wanted = [media.sha256 for media in media_of(message) if media.kind == "sha256" and media.sha256]
    if not wanted:
        return message, ()
    found = await resolve_media([message], store, limit_bytes=CARRIED_LIMIT_BYTES)
    missing = tuple(dict.fromkeys(digest for digest in wanted if digest not in found))
    return message.model_copy(update={"content": _inlined(message.content, found)}), missing


def _inlined(content: Iterable[Block], found: Mapping[str, MediaRef]) -> tuple[Block, ...]:
    return tuple(_block(block, found) for block in content)


def _block(block: Block, found: Mapping[str, MediaRef]) -> Block:
    match block:
        case ToolResultBlock(content=content):
            return block.model_copy(update={"content": _inlined(content, found)})
        case VideoBlock(media=media, thumbnail=thumbnail):
            return block.model_copy(update={"media": _media(media, found), "thumbnail": _media(thumbnail, found)})
        case ImageBlock() | AudioBlock() | DocumentBlock():
            return block.model_copy(update={"media": _media(block.media, found)})
        case DataBlock():
            return block.model_copy(update={"media": _media(block.media, found)})
        case _:
            return block


@overload
def _media(media: MediaRef, found: Mapping[str, MediaRef]) -> MediaRef: ...
@overload
def _media(media: MediaRef | None, found: Mapping[str, MediaRef]) -> MediaRef | None: ...
def _media(media: MediaRef | None, found: Mapping[str, MediaRef]) -> MediaRef | None:
    """With all that was known of it, its digest too: where it is stored again, that is checked."""
    stored = found.get(media.sha256 or "") if media is not None and media.kind == "sha256" else None
    return media.model_copy(update={"kind": "data", "data": stored.data}) if media and stored else media
