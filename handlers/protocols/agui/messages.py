"""Contents of messages in the form of AG-UI. Pure."""

from collections.abc import Iterator

from pydantic import JsonValue

from lanebus.bus.messages.content import AudioBlock, Block, DocumentBlock, ImageBlock, TextBlock, VideoBlock
from lanebus.bus.messages.media import MediaRef
from lanebus.bus.messages.message import ToolResultMessage, UserMessage

__all__ = ("as_shown", "result_content", "user_content")

_Media = ImageBlock | AudioBlock | VideoBlock | DocumentBlock


def user_content(message: UserMessage) -> JsonValue:
    """Return a user's content: a text, or parts if there is more than text.

    Media that the server stores have no address that the protocol can name, so they are a text in brackets.
    """
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    return [_part(block) for block in _shown_blocks(message)]


def as_shown(message: UserMessage) -> UserMessage:
    """Return a user's message as a client reads it from `user_content`, and may send it back with the same id."""
    if all(isinstance(block, TextBlock) for block in message.content):
        blocks: tuple[Block, ...] = (TextBlock(text=message.text_content()),)
    else:
        blocks = tuple(_shown_blocks(message))
    return message.model_copy(update={"content": blocks})


def result_content(message: ToolResultMessage) -> str:
    """Return a tool's result as text. Clients before version 1.0 accept nothing else."""
    return message.text_with_results()


def _shown_blocks(message: UserMessage) -> Iterator[TextBlock | _Media]:
    """Yield the texts and media of a message. Media that the bus has stored become texts: clients cannot load them."""
    for block in message.content:
        if isinstance(block, _Media) and not _is_sent(block.media):
            yield TextBlock(text=f"[{block.type}: {block.media.mime_type or 'stored media'}]")
        elif isinstance(block, TextBlock | _Media):
            yield block


def _is_sent(media: MediaRef) -> bool:
    return media.kind == "url" or (media.kind == "data" and media.mime_type is not None)


def _part(block: TextBlock | _Media) -> JsonValue:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    media = block.media
    named: dict[str, JsonValue] = {} if media.mime_type is None else {"mimeType": media.mime_type}
    return {"type": block.type, "source": {"type": media.kind, "value": media.url or media.data, **named}}
