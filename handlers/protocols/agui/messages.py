"""Contents of messages in the form of AG-UI. Pure."""

from pydantic import JsonValue

from lanebus.bus.messages.content import AudioBlock, DocumentBlock, ImageBlock, TextBlock, VideoBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import ToolResultMessage, UserMessage

__all__ = ("result_content", "user_content")


def user_content(message: UserMessage) -> JsonValue:
    """Return a user's content: a text, or parts if there is more than text.

    Media that the server stores have no address that the protocol can name, so they are a text in brackets.
    """
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    parts: list[JsonValue] = []
    for block in message.content:
        match block:
            case TextBlock(text=text):
                parts.append({"type": "text", "text": text})
            case ImageBlock(media=media) | AudioBlock(media=media) | VideoBlock(media=media):
                parts.append(_media_part(block.type, media))
            case DocumentBlock(media=media):
                parts.append(_media_part("document", media))
            case _:
                pass
    return parts


def result_content(message: ToolResultMessage) -> str:
    """Return a tool's result as text. Clients before version 1.0 accept nothing else."""
    return message.text_with_results()


def _media_part(kind: str, media: MediaRef) -> JsonValue:
    if media.kind == "url" and media.url is not None:
        named: dict[str, JsonValue] = {} if media.mime_type is None else {"mimeType": media.mime_type}
        return {"type": kind, "source": {"type": "url", "value": media.url, **named}}
    if media.kind == "data" and media.data is not None and media.mime_type is not None:
        return {"type": kind, "source": {"type": "data", "value": media.data, "mimeType": media.mime_type}}
    return {"type": "text", "text": f"[{kind}: {media.mime_type or 'stored media'}]"}
