"""Find details of blocks that no provider's request has a field for. Such details are never sent.

One loss is reported for each message that has such details.
"""

from collections.abc import Iterable, Iterator

from lanebus.bus.messages.content import Block, DocumentBlock, ImageBlock, TextBlock
from lanebus.bus.messages.llm import LlmMessage
from lanebus.handlers.providers.common.blocks import flat

__all__ = ("details_left_out",)


def details_left_out(place: str, messages: Iterable[LlmMessage]) -> Iterator[str]:
    """Yield one loss for each message whose blocks have details that no request has a field for.

    A detail that can be derived from the content again, such as a transcript, thumbnail or excerpt, is no loss.

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
