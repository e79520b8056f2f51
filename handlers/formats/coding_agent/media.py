"""Convert the `coding-agent` system's images and sounds. Each is a text in a list: a URL, base64 or, for sounds, a
`file:` path.
"""

import base64
import binascii
from collections.abc import Callable, Iterable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages import AudioBlock, Block, ImageBlock, MediaRef, sniff
from lanebus.handlers.formats.json_object import JsonObject

Files = Callable[[str], MediaRef]
"""A function that reads the file at a path, such as `MediaRef.from_file`.

Pass such a function only for messages from a trusted source.
"""

_UNKNOWN = {"image": "image/png", "audio": "audio/mpeg"}
"""Kind of block → the media type that the `coding-agent` system assumes for bytes of an unrecognized type."""

_ITEMS = {"image": "images", "audio": "audio"}


def to_base64(content: Iterable[Block]) -> list[tuple[str, str]]:
    """Return all images and sounds in order, as pairs of base64 and media type.

    An image at a URL is returned as the URL and "". Media that are neither inline nor at a URL are left out.

    Source: the `coding-agent` system's method `to_base64`.
    """
    found = [block.media for block in content if isinstance(block, ImageBlock | AudioBlock)]
    return [
        (media.data, media.mime_type or "") if media.data is not None else (media.url or "", "")
        for media in found
        if media.data is not None or media.url is not None
    ]


def media_of(item: JsonValue, path: str, *, kind: str) -> MediaRef:
    """Return the reference for one image or sound.

    The item is base64; for an image, it may also be an http(s) URL. The `coding-agent` system's JSON has no media type.
    For base64, the type is detected from the bytes, or else PNG or MP3. A URL has no type.

    Raises:
        DecodeError: the item is empty, a `file:` path, or in none of these forms.
    """
    if not isinstance(item, str):
        raise DecodeError(path, "wants text: base64 or a URL")
    if _is_file(item):
        raise DecodeError(path, "names a file. Pass `files` to read it")
    source = JsonObject({}, path)
    if kind == "image" and item.startswith(("http://", "https://")):
        return source.made(MediaRef, {"kind": "url", "url": item}, {"url": ""})
    if not item:
        raise DecodeError(path, "holds no bytes")
    media = source.made(MediaRef, {"kind": "data", "data": item}, {"data": ""})
    return media.model_copy(update={"mime_type": _shown(item, kind)})


def can_say(media: MediaRef, *, kind: str) -> bool:
    """Return whether the `coding-agent` format can represent the reference."""
    if media.kind == "url":
        return kind == "image" and (media.url or "").startswith(("http://", "https://"))
    return media.kind == "data"


def written_media(media: MediaRef) -> str:
    """Return the text for an image or sound in the `coding-agent` system's JSON: the URL or the base64 of `media`."""
    return (media.url if media.kind == "url" else media.data) or ""


def inlined(message: JsonValue, files: Files | None) -> JsonValue:
    """Return the message with each `data:` URL replaced by its base64.

    If `files` is not None, each `file:` path is replaced by the file's base64 too.
    """
    contents = message.get("contents") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(contents, list):
        return message
    return {**message, "contents": [_block_inlined(block, files) for block in contents]}


def _block_inlined(block: JsonValue, files: Files | None) -> JsonValue:
    name = _ITEMS.get(str(block.get("type"))) if isinstance(block, dict) else None
    items = block.get(name) if isinstance(block, dict) and name is not None else None
    if not isinstance(block, dict) or name is None or not isinstance(items, list):
        return block
    return {**block, name: [_item_inlined(item, files) for item in items]}


def _item_inlined(item: JsonValue, files: Files | None) -> JsonValue:
    if not isinstance(item, str):
        return item
    head, comma, data = item.partition(",")
    if comma and head.lower().startswith("data:") and head.endswith(";base64"):
        return data
    if files is not None and _is_file(item):
        return files(item[5:]).data
    return item


def _is_file(item: str) -> bool:
    return item[:5].lower() == "file:"


def _shown(data: str, kind: str) -> str:
    try:
        found = sniff(base64.b64decode(data[:1024]))
    except binascii.Error:
        found = None
    return found if found is not None and found.startswith(f"{kind}/") else _UNKNOWN[kind]
