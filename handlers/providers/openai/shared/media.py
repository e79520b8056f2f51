"""Convert images, audio and documents for OpenAI's APIs. A reference is passed on or left out, never fetched."""

from typing import Literal

from lanebus.bus.messages.content import DocumentBlock, ImageBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.handlers.providers.common.media import inline_type, is_web, unreachable
from lanebus.handlers.providers.openai.shared.parts import Audio, File, Image, Text
from lanebus.handlers.providers.openai.shared.wire import Api

__all__ = ("audio_part", "document_part", "image_part")

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_AUDIO_FORMATS: dict[str, Literal["wav", "mp3"]] = {
    "audio/wav": "wav",
    "audio/wave": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}
_PDF = "application/pdf"
_ANYTHING = "application/octet-stream"


def image_part(block: ImageBlock, media: MediaRef, api: Api) -> Image | str:
    """Return the image at `media`. If it cannot be sent, return the reason as text.

    Inline media of unknown type are declared as PNG.
    """
    match media.kind:
        case "data":
            media_type = inline_type(media) or "image/png"
            if media_type not in _IMAGE_TYPES:
                return f"{media_type} is none of {', '.join(sorted(_IMAGE_TYPES))}"
            return Image(url=_data_uri(media_type, media), detail=block.detail)
        case "url" if is_web(media.url):
            return Image(url=media.url, detail=block.detail)
        case "file_id" if api == "responses":
            return Image(file_id=media.file_id, detail=block.detail)
        case "file_id":
            return "images by the id of a file are taken by Responses alone"
        case _:
            return unreachable(media)


def audio_part(media: MediaRef, api: Api) -> Audio | str:
    """Return the audio. If it cannot be sent, return the reason as text. Audio of unknown type is declared as WAV."""
    if api == "responses":
        return "Responses takes no audio"
    if media.kind != "data":
        return "audio is taken inline alone"
    media_type = inline_type(media) or "audio/wav"
    audio_format = _AUDIO_FORMATS.get(media_type)
    return Audio(media.data or "", audio_format) if audio_format else f"{media_type} is neither WAV nor MP3"


def document_part(block: DocumentBlock, media: MediaRef, api: Api) -> File | Text | str:
    """Return the document at `media`. If `media` cannot be sent, return the text extracted from the document.

    If there is no such text, return the reason as text.

    Source: Chat Completions reads only PDF and no URLs; Responses also reads office documents.
    """
    found = _file(media, api)
    if isinstance(found, str) and (text := block.text or block.excerpt):
        return Text(text)
    return found


def _file(media: MediaRef, api: Api) -> File | Text | str:
    match media.kind:
        case "data":
            media_type = inline_type(media) or _ANYTHING
            if media_type.startswith("text/"):
                return _decoded(media)
            if media_type != _PDF and (api == "chat" or media_type == _ANYTHING):
                return f"{media_type} is neither PDF nor text"
            # The API requires a name with the data.
            name = media.filename or ("document.pdf" if media_type == _PDF else "document")
            return File(data=_data_uri(media_type, media), filename=name)
        case "url" if api == "chat":
            return "Chat Completions reads no files at URLs"
        case "url" if is_web(media.url):
            return File(url=media.url)
        case "file_id":
            return File(file_id=media.file_id)
        case _:
            return unreachable(media)


def _decoded(media: MediaRef) -> Text | str:
    try:
        text = media.decoded().decode("utf-8")
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return Text(text) if text else "its text is empty"


def _data_uri(media_type: str, media: MediaRef) -> str:
    return f"data:{media_type};base64,{media.data}"
