"""Decode the blocks of a posted message. Every error names the path of the field.

Media are named by the SHA-256 of an upload, or are inline. URLs are refused: a provider would fetch them, or read them
from a bucket, with rights that the client may not have.
"""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import AudioBlock, Block, DocumentBlock, ImageBlock, TextBlock, VideoBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.media_checks import sanitize_filename
from lanebus.handlers.json_fields import Object, as_list, as_object, as_text, below, made
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.uploads.errors import UploadMissing

__all__ = ("MIME_TYPE", "PostedMedia", "check_fields", "check_name", "check_type", "read_content", "with_media")

MIME_TYPE = r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}/[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}"
"""pattern of a media type without parameters"""

_TYPE = re.compile(MIME_TYPE)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BLOCKS: dict[str, type[ImageBlock | AudioBlock | VideoBlock | DocumentBlock]] = {
    "image": ImageBlock,
    "audio": AudioBlock,
    "video": VideoBlock,
    "document": DocumentBlock,
}
_NAME_LIMIT = 255


class PostedMedia(NamedTuple):
    """A block of media, whose upload is still to be found if the media are not inline."""

    type: str
    media: MediaRef
    path: str


def read_content(value: JsonValue, path: str, bounds: UiBounds) -> tuple[TextBlock | PostedMedia, ...]:
    """Decode the blocks of a message.

    Args:
        value: the JSON.
        path: path of the value, for errors.
        bounds: how many blocks, and how many bytes of inline media, are allowed.

    Raises:
        DecodeError: the value is no list of blocks, or a block has another shape.
    """
    given = as_list(value, path)
    if not 0 < len(given) <= bounds.message_blocks:
        raise DecodeError(path, f"must have 1 to {bounds.message_blocks} blocks")
    blocks = tuple(_block(each, below(path, at)) for at, each in enumerate(given))
    inline = sum(each.media.inline_size_bytes for each in blocks if isinstance(each, PostedMedia))
    if inline > bounds.inline_bytes:
        raise DecodeError(path, f"has {inline} bytes of inline media, at most {bounds.inline_bytes}: upload them")
    return blocks


async def with_media(
    blocks: tuple[TextBlock | PostedMedia, ...], store: Callable[[str], Awaitable[MediaRef]]
) -> tuple[Block, ...]:
    """Return the blocks of the message.

    Args:
        blocks: the posted blocks.
        store: moves an upload to the media store by its SHA-256, and returns the reference.

    Raises:
        DecodeError: there is no complete upload of this SHA-256, or it is of another type than its block.
        BusError: the upload could not be stored.
    """
    return tuple([each if isinstance(each, TextBlock) else await _stored(each, store) for each in blocks])


async def _stored(block: PostedMedia, store: Callable[[str], Awaitable[MediaRef]]) -> Block:
    media, path = block.media, below(block.path, "media")
    if media.kind == "sha256":
        try:
            media = await store(media.sha256 or "")
        except UploadMissing:
            raise DecodeError(
                below(path, "sha256"), "names no complete upload of yours to this session: upload the file first"
            ) from None
    if block.type != "document" and (media.mime_type or "").partition("/")[0] != block.type:
        raise DecodeError(below(block.path, "type"), f"is {block.type}, and the media are of {media.mime_type}")
    return _BLOCKS[block.type](media=media)


def _block(value: JsonValue, path: str) -> TextBlock | PostedMedia:
    fields = as_object(value, path)
    kind = fields.get("type")
    if kind == "text":
        check_fields(fields, ("type", "text"), path)
        text = as_text(fields.get("text"), below(path, "text"))
        if not text.strip():
            raise DecodeError(below(path, "text"), "must be a text that is not empty")
        return TextBlock(text=text)
    if not isinstance(kind, str) or kind not in _BLOCKS:
        raise DecodeError(below(path, "type"), f"must be text, {', '.join(_BLOCKS)}")
    check_fields(fields, ("type", "media"), path)
    return PostedMedia(kind, _media(fields.get("media"), below(path, "media")), path)


def _media(value: JsonValue, path: str) -> MediaRef:
    fields = as_object(value, path)
    match fields.get("kind"):
        case "sha256":
            check_fields(fields, ("kind", "sha256"), path)
            digest = as_text(fields.get("sha256"), below(path, "sha256"))
            if _SHA256.fullmatch(digest) is None:
                raise DecodeError(below(path, "sha256"), "must be 64 lower-case hex digits")
            return MediaRef(kind="sha256", sha256=digest)
        case "data":
            check_fields(fields, ("kind", "data", "mimeType", "filename"), path)
            read = {"kind": "data", "data": as_text(fields.get("data"), below(path, "data"))}
            told = check_type(fields.get("mimeType"), below(path, "mimeType"))
            name = check_name(fields.get("filename"), below(path, "filename"))
            inline = made(MediaRef, read, path)
            return MediaRef.from_bytes(inline.decoded(), mime_type=told, filename=name)
        case _:
            raise DecodeError(below(path, "kind"), "must be sha256, of an upload, or data, in base64")


def check_type(value: JsonValue, path: str) -> str | None:
    """Return an optional media type; None if it is missing.

    Raises:
        DecodeError: `value` is no media type.
    """
    if value is None:
        return None
    if not isinstance(value, str) or _TYPE.fullmatch(value) is None:
        raise DecodeError(path, "must be a media type such as image/png, without parameters")
    return value.lower()


def check_name(value: JsonValue, path: str) -> str | None:
    """Return an optional file name that is safe in any folder; None if it is missing.

    Raises:
        DecodeError: `value` is no text of 1 to 255 characters.
    """
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_LIMIT:
        raise DecodeError(path, f"must be a name of 1 to {_NAME_LIMIT} characters")
    return sanitize_filename(value)


def check_fields(fields: Object, allowed: tuple[str, ...], path: str = "") -> None:
    """Check the names of an object's fields. Raise DecodeError with the path of the first unknown one."""
    if unknown := fields.keys() - {*allowed}:
        raise DecodeError(below(path, min(unknown)), f"is unknown: the fields are {', '.join(allowed)}")
