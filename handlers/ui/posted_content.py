"""Decode the blocks of a posted message. Every error names the path of the field.

Media are named by the SHA-256 of an upload, are inline, or are at an address that the server allows.
"""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.content import Block, TextBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.json_fields import Object, as_list, as_object, as_text, below
from lanebus.handlers.protocols.client_content import (
    MEDIA_TYPES,
    ContentRules,
    Given,
    check_content,
    check_count,
    data_media,
    media_block_of,
    text_block,
    url_media,
)
from lanebus.handlers.ui.uploads.errors import UploadMissing

__all__ = ("PostedMedia", "check_fields", "read_content", "with_media")

_SHA256 = re.compile(r"[0-9a-f]{64}")


class PostedMedia(NamedTuple):
    """A block of media, whose upload is still to be found if the media are not inline."""

    type: str
    media: MediaRef
    path: str


def read_content(value: JsonValue, path: str, rules: ContentRules) -> tuple[TextBlock | PostedMedia, ...]:
    """Decode the blocks of a message.

    Args:
        value: the JSON.
        path: path of the value, for errors.
        rules: how many blocks, how many bytes of inline media, and which addresses are allowed.

    Raises:
        DecodeError: the value is no list of blocks, or a block has another shape.
    """
    given = as_list(value, path)
    check_count(given, path, rules)
    return check_content([_block(each, below(path, at), rules) for at, each in enumerate(given)], path, rules)


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
    return media_block_of(media, Given(block.type, below(block.path, "type")))


def _block(value: JsonValue, path: str, rules: ContentRules) -> TextBlock | PostedMedia:
    fields = as_object(value, path)
    kind = fields.get("type")
    if kind == "text":
        check_fields(fields, ("type", "text"), path)
        block = text_block(Given(fields.get("text"), below(path, "text")))
        if not block.text.strip():
            raise DecodeError(below(path, "text"), "must be a text that is not empty")
        return block
    if not isinstance(kind, str) or kind not in MEDIA_TYPES:
        raise DecodeError(below(path, "type"), f"must be text, {', '.join(MEDIA_TYPES)}")
    check_fields(fields, ("type", "media"), path)
    return PostedMedia(kind, _media(fields.get("media"), below(path, "media"), rules), path)


def _media(value: JsonValue, path: str, rules: ContentRules) -> MediaRef:
    fields = as_object(value, path)

    def given(name: str) -> Given:
        return Given(fields.get(name), below(path, name))

    match fields.get("kind"):
        case "sha256":
            check_fields(fields, ("kind", "sha256"), path)
            digest = as_text(fields.get("sha256"), below(path, "sha256"))
            if _SHA256.fullmatch(digest) is None:
                raise DecodeError(below(path, "sha256"), "must be 64 lower-case hex digits")
            return MediaRef(kind="sha256", sha256=digest)
        case "data":
            check_fields(fields, ("kind", "data", "mimeType", "filename"), path)
            return data_media(given("data"), given("mimeType"), given("filename"))
        case "url" if rules.addresses.has_any:
            check_fields(fields, ("kind", "url", "mimeType", "filename"), path)
            return url_media(given("url"), given("mimeType"), given("filename"), rules)
        case _:
            raise DecodeError(below(path, "kind"), "must be sha256, of an upload, or data, in base64")


def check_fields(fields: Object, allowed: tuple[str, ...], path: str = "") -> None:
    """Check the names of an object's fields. Raise DecodeError with the path of the first unknown one."""
    if unknown := fields.keys() - {*allowed}:
        raise DecodeError(below(path, min(unknown)), f"is unknown: the fields are {', '.join(allowed)}")
