"""Render images and documents in Anthropic's form. A reference is passed on or left out, never fetched."""

from lanebus.bus.messages.content import DocumentBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.providers.common.media import inline_type, is_web, unreachable
from lanebus.handlers.providers.common.request import Json

__all__ = ("document_block", "image_block")

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"


def image_block(media: MediaRef) -> Json | str:
    """Return the image block. If the image cannot be sent, return the reason as text."""
    match media.kind:
        case "data":
            media_type = inline_type(media)
            if media_type not in _IMAGE_TYPES:
                return f"{media_type or 'unknown type'} is none of {', '.join(sorted(_IMAGE_TYPES))}"
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": media.data}}
        case "url" if is_web(media.url):
            return {"type": "image", "source": {"type": "url", "url": media.url}}
        case "file_id":
            return {"type": "image", "source": {"type": "file", "file_id": media.file_id}}
        case _:
            return unreachable(media)


def document_block(block: DocumentBlock, media: MediaRef) -> Json | str:
    """Return the document at `media` as a block. If `media` cannot be sent, the block holds the text extracted from the
    document.

    If there is no such text, return the reason as text.
    """
    source = _document_source(media)
    if isinstance(source, str):
        text = next((text for text in (block.text, block.excerpt) if text and text.strip()), None)
        if text is None:
            return source
        source = _plain_text(text)
    title: Json = {"title": media.filename} if media.filename else {}
    return {"type": "document", "source": source, **title}


def _document_source(media: MediaRef) -> Json | str:
    match media.kind:
        case "data":
            media_type = inline_type(media) or "unknown type"
            if media_type == _PDF:
                return {"type": "base64", "media_type": _PDF, "data": media.data or ""}
            return _decoded(media) if media_type.startswith("text/") else f"{media_type} is neither PDF nor text"
        case "url" if is_web(media.url):
            if media.mime_type not in {None, _PDF}:
                return f"{media.mime_type} at a URL, only PDF is read there"
            return {"type": "url", "url": media.url}
        case "file_id":
            return {"type": "file", "file_id": media.file_id}
        case _:
            return unreachable(media)


def _decoded(media: MediaRef) -> Json | str:
    try:
        text = media.decoded().decode("utf-8")
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return _plain_text(text) if text.strip() else "its text is empty"


def _plain_text(text: str) -> Json:
    return {"type": "text", "media_type": "text/plain", "data": text}
