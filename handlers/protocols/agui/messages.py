"""Contents of messages in the form of AG-UI. Pure."""

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, TextBlock
from lanebus.bus.messages.message import UserMessage
from lanebus.bus.messages.tool_result import ToolResultMessage
from lanebus.handlers.protocols.client_content import MediaBlock, shown_blocks

__all__ = ("as_shown", "result_content", "user_content")


def user_content(message: UserMessage) -> JsonValue:
    """Return a user's content: a text, or parts if there is more than text.

    Media that the server stores have no address that the protocol can name, so they are a text in brackets.
    """
    if all(isinstance(block, TextBlock) for block in message.content):
        return message.text_content()
    return [_part(block) for block in shown_blocks(message)]


def as_shown(message: UserMessage) -> UserMessage:
    """Return a user's message as a client reads it from `user_content`, and may send it back with the same id."""
    if all(isinstance(block, TextBlock) for block in message.content):
        blocks: tuple[Block, ...] = (TextBlock(text=message.text_content()),)
    else:
        blocks = tuple(shown_blocks(message))
    return message.model_copy(update={"content": blocks})


def result_content(message: ToolResultMessage) -> str:
    """Return a tool's result as text. Clients before version 1.0 accept nothing else."""
    return message.text_with_results()


def _part(block: TextBlock | MediaBlock) -> JsonValue:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    media = block.media
    named: dict[str, JsonValue] = {} if media.mime_type is None else {"mimeType": media.mime_type}
    return {"type": block.type, "source": {"type": media.kind, "value": media.url or media.data, **named}}
