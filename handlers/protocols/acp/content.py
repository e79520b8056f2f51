"""Contents of messages in the form of ACP, and back. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import (
    AudioBlock,
    DocumentBlock,
    ErrorBlock,
    ImageBlock,
    TextBlock,
    VideoBlock,
)
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import UserMessage
from lanebus.handlers.protocols.client_content import Given, data_media, media_block_of, plain_type, text_block

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import JsonValue

    from lanebus.bus.messages.content import Block

__all__ = ("PromptBlock", "content_of", "prompt_message", "text_part")

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
"""One block of a prompt."""


def prompt_message(prompt: Sequence[PromptBlock], *, id: str, metadata: Mapping[str, JsonValue]) -> UserMessage:
    """Return the user's message of a prompt.

    A link to a resource becomes its name and address, because nothing on the bus opens a path: a tool reads it. The
    text of an embedded resource becomes a text with its address.

    Raises:
        DecodeError: the prompt is empty, or the bytes of a block cannot be read.
    """
    blocks = tuple(_block(each, f"prompt.{at}") for at, each in enumerate(prompt))
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise DecodeError("prompt", "must have a text that is not empty, an image or a resource")
    return UserMessage(id=id, content=blocks, metadata=dict(metadata))


def _block(block: PromptBlock, path: str) -> Block:
    match block:
        case TextContentBlock(text=text):
            return text_block(Given(text, path))
        case ImageContentBlock(data=data, mime_type=mime_type) | AudioContentBlock(data=data, mime_type=mime_type):
            return _media(data, mime_type, None, path)
        case ResourceContentBlock(name=name, uri=uri):
            return text_block(Given(f"[{name}]({uri})", path))
        case EmbeddedResourceContentBlock(resource=BlobResourceContents(blob=blob, mime_type=mime_type, uri=uri)):
            return _media(blob, mime_type, uri, path)
        case EmbeddedResourceContentBlock(resource=resource):
            text = getattr(resource, "text", "")
            return text_block(Given(f'<resource uri="{resource.uri}">\n{text}\n</resource>', path))


def _media(data: str, mime_type: str | None, uri: str | None, path: str) -> Block:
    name = PurePosixPath(unquote(urlsplit(uri).path)).name if uri else ""
    try:
        return media_block_of(
            data_media(Given(data, path), Given(plain_type(mime_type), path), Given(name or None, path))
        )
    except DecodeError:
        raise DecodeError(path, "must have bytes of its type, in base64") from None


def text_part(text: str) -> JsonValue:
    """Return a block of text."""
    return {"type": "text", "text": text}


def content_of(blocks: Sequence[Block], media: Mapping[str, MediaRef]) -> list[JsonValue]:
    """Return blocks as an editor shows them.

    Media that are neither inline nor in `media` become a link, or a text in brackets if they have no address.

    Args:
        blocks: the content of a message.
        media: stored media that were loaded, by `MediaRef.address`.
    """
    parts = (_part(block, media) for block in blocks)
    return [part for part in parts if part is not None]


def _part(block: Block, loaded: Mapping[str, MediaRef]) -> JsonValue:
    match block:
        case TextBlock(text=text):
            return text_part(text) if text else None
        case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media) | DocumentBlock(media=media):
            return _media_part(block.type, loaded.get(media.address or "", media))
        case ErrorBlock(message=message):
            return text_part(message)
        case _:
            return None


def _media_part(kind: str, media: MediaRef) -> JsonValue:
    name = media.filename or kind
    if media.kind == "data" and media.data is not None:
        mime_type = media.mime_type or "application/octet-stream"
        if kind in {"image", "audio"}:
            return {"type": kind, "data": media.data, "mimeType": mime_type}
        resource: JsonValue = {"blob": media.data, "mimeType": mime_type, "uri": f"attachment:{name}"}
        return {"type": "resource", "resource": resource}
    if media.kind == "url" and media.url is not None:
        return {"type": "resource_link", "name": name, "uri": media.url}
    return text_part(f"[{kind}: {media.mime_type or 'stored media'}]")
