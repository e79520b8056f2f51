"""Render media as parts of a Gemini request. A reference is passed on or left out, never fetched."""

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from lanebus.bus.messages.content import AudioBlock, DocumentBlock, ImageBlock, VideoBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.providers.common.media import inline_type, is_web, unreachable
from lanebus.handlers.providers.common.request import Json

__all__ = ("MediaBlock", "media_part")

MediaBlock = ImageBlock | AudioBlock | VideoBlock | DocumentBlock

_TAKEN: dict[str, tuple[str, ...]] = {
    "image": ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
    "audio": ("audio/",),
    "video": ("video/",),
    "document": ("application/pdf", "text/"),
}
"""Type of block → the media types that the API accepts. An item that ends with "/" is a prefix.

Source: the API's pages on images, audio, video and documents.
"""

_SUFFIXES = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".gif": "image/gif"},
    **{".heic": "image/heic", ".heif": "image/heif"},
    **{".mp3": "audio/mpeg", ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".aac": "audio/aac"},
    **{".aiff": "audio/aiff", ".m4a": "audio/mp4"},
    **{".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm", ".mpeg": "video/mpeg"},
    **{".pdf": "application/pdf", ".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv"},
    **{".html": "text/html", ".css": "text/css", ".xml": "text/xml"},
}


def media_part(block: MediaBlock, media: MediaRef, losses: list[str]) -> Json | str:
    """Return the part. If the media cannot be sent, return the reason as text.

    A document that cannot be sent is replaced by the text extracted from the document. The API requires a media type.
    For inline media, the type is detected from the bytes, or else the declared type is used. For other media without a
    declared type, it is derived from the file name, which is reported as a loss.
    """
    part = _part(block, media, losses)
    if isinstance(part, dict) or not isinstance(block, DocumentBlock):
        return part
    text = next((text for text in (block.text, block.excerpt) if text and text.strip()), None)
    return part if text is None else {"text": text}


def _part(block: MediaBlock, media: MediaRef, losses: list[str]) -> Json | str:
    match media.kind:
        case "data":
            media_type = inline_type(media)
            reason = _refusal(block, media_type)
            return reason or {"inlineData": {"mimeType": media_type, "data": media.data}}
        case "url" if is_web(media.url) or (media.url or "").startswith("gs://"):
            place = media.url
        case "file_id":
            place = media.file_id
        case _:
            return unreachable(media)
    media_type = media.mime_type or _by_name(media)
    if reason := _refusal(block, media_type):
        return reason
    if media.mime_type is None:
        losses.append(f"type of {block.type} not known, sent as {media_type} after its name")
    return {"fileData": {"mimeType": media_type, "fileUri": place}}


def _by_name(media: MediaRef) -> str | None:
    name = media.filename or urlsplit(media.url or media.file_id or "").path
    return _SUFFIXES.get(PurePosixPath(name).suffix.lower())


def _refusal(block: MediaBlock, media_type: str | None) -> str | None:
    if media_type is None:
        return "its type is not known"
    taken = _TAKEN[block.type]
    fits = any(media_type.startswith(one) if one.endswith("/") else media_type == one for one in taken)
    return None if fits else f"{media_type} is none of {', '.join(one + '*' * one.endswith('/') for one in taken)}"
