"""Details of blocks that no provider's request has a field for. They are never sent; each message warns once."""

from collections.abc import Iterable, Iterator

from lanebus.bus.messages.content import Block, DocumentBlock, ImageBlock, TextBlock
from lanebus.bus.messages.message import LlmMessage
from lanebus.handlers.providers.common.blocks import flat

__all__ = ("details_left_out",)


def details_left_out(place: str, messages: Iterable[LlmMessage]) -> Iterator[str]:
    """Return a loss for each message whose blocks have such details.

    What can be derived from the content again, such as a transcript, thumbnail or excerpt, is no loss.

    Args:
        place: prefix such as "messages"; the message's index follows it.
        messages: the messages to check.
    """
    for index, message in enumerate(messages):
        names = dict.fromkeys(name for block in flat(message.content) for name in _details(block))
        if names:
            yield f"{place}.{index}: {', '.join(names)} left out: no request has a field for it"


def _details(block: Block) -> Iterator[str]:
    match block:
        case TextBlock(annotations=annotations) if annotations:
            yield "annotations of a text"
        case ImageBlock():
            if block.alt_text:
                yield "alt text of an image"
            if block.bbox:
                yield "bounding box of an image"
        case DocumentBlock(pages=pages) if pages:
            yield "page numbers of a document"
        case _:
            pass
