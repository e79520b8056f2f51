"""Convert the `universal-client` system's image, audio and document data: `{url | data, media_type, file_name}`.

Bytes are base64 text.
"""

import base64
from collections.abc import Callable

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.media import MediaRef, sniff
from lanebus.handlers.codecs.json_object import JsonObject
from lanebus.handlers.json_fields import Object

__all__ = ("Files", "inlined", "media_of", "written_media")

Files = Callable[[str], MediaRef]
"""A function that reads the file at a path, such as `MediaRef.from_file`.

Pass such a function only for messages from a trusted source.
"""

_KINDS = ("image", "audio", "document")
_BYTES = ("data", "data_base64")


def media_of(source: JsonObject, *, kind: str) -> MediaRef:
    """Return the reference in an image, audio or document part.

    Raises:
        DecodeError: the part does not have exactly one of `url` and `data`, the URL is a local path, or the bytes are
            not base64 text.
    """
    data = _bytes(source)
    url = source.text("url")
    if (url is None) == (data is None):
        raise source.fault("", "wants exactly one of url and data")
    if url is not None and _is_local(url):
        raise source.fault("url", "names a file. Pass `files` to read it")
    if data == "":
        raise source.fault(_data_key(source), "holds no bytes")
    mime_type = source.text("media_type")
    if kind == "image" and mime_type is None and data is not None:
        mime_type = _shown(data) or "image/png"
    fields: Object = {
        "kind": "url" if url is not None else "data",
        "url": url,
        "data": data,
        "mimeType": mime_type,
        "filename": source.text("file_name") if kind == "document" else None,
    }
    return source.made(MediaRef, fields, {"data": _data_key(source)})


def written_media(media: MediaRef, *, kind: str) -> Object:
    """Return the data of an image, audio or document part. The media must be at a URL or inline."""
    where: Object = {"url": media.url} if media.kind == "url" else {"data": media.data}
    if media.mime_type is not None:
        where["media_type"] = media.mime_type
    if media.filename is not None and kind == "document":
        where["file_name"] = media.filename
    return where


def inlined(message: JsonValue, files: Files | None) -> JsonValue:
    """Return the message with each `data:` URL replaced by its bytes.

    If `files` is not None, each local path is replaced by the file's bytes too.

    Raises:
        DecodeError: a `data:` URL is not base64.
    """
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list):
        return message
    parts = [_part_inlined(part, f"content.{index}", files) for index, part in enumerate(content)]
    return {**message, "content": parts}


def _part_inlined(part: JsonValue, path: str, files: Files | None) -> JsonValue:
    if not isinstance(part, dict):
        return part
    return {
        key: _media_inlined(item, f"{path}.{key}.url", files) if key in _KINDS else item for key, item in part.items()
    }


def _media_inlined(value: JsonValue, path: str, files: Files | None) -> JsonValue:
    url = value.get("url") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(url, str) or not value.keys().isdisjoint(_BYTES):
        return value
    if url[:5].lower() == "data:":
        head, _, data = url[5:].partition(",")
        if not head.endswith(";base64"):
            raise DecodeError(path, "wants base64 in a data: URL")
        found: Object = {"data": data, "media_type": head[:-7] or None}
    elif files is not None and _is_local(url):
        media = files(url[5:] if url[:5].lower() == "file:" else url)
        found = {"data": media.data, "media_type": media.mime_type}
    else:
        return value
    return {**found, **{key: item for key, item in value.items() if key != "url" and item is not None}}


def _bytes(source: JsonObject) -> str | None:
    for name in _BYTES:
        if isinstance(source.fields.get(name), list):
            raise source.fault(name, "wants base64 text, not a list of numbers")
    return source.text(*_BYTES)


def _data_key(source: JsonObject) -> str:
    return "data_base64" if source.fields.get("data") is None and "data_base64" in source.fields else "data"


def _is_local(url: str) -> bool:
    return url.startswith(("/", "./", "../", "~", "\\", ".\\")) or url[:5].lower() == "file:" or url[1:2] == ":"


def _shown(data: str) -> str | None:
    try:
        return sniff(base64.b64decode(data[:1024]))
    except ValueError:  # not base64, or not even ASCII: MediaRef raises the error for it
        return None
