"""Put live deltas before the answers of a recorded session, as a follower got them."""

from collections.abc import Iterable, Iterator

from lanebus import AssistantMessage, Delta, Envelope
from lanebus.handlers.protocols.run_events import arguments_text
from lanebus.messages import TextBlock, ThinkingBlock, ToolCallBlock

__all__ = ("with_deltas",)


def with_deltas(entries: Iterable[Envelope], size: int) -> Iterator[Envelope]:
    """Yield the entries, each answer after live deltas of its blocks in pieces of `size` characters."""
    for entry in entries:
        if isinstance(entry.message, AssistantMessage) and entry.message.id:
            for number, delta in enumerate(_deltas(entry.message, entry.message.id, size), 1):
                yield entry._replace(position=entry.position - 1, delta=number, message=delta)
        yield entry


def _deltas(message: AssistantMessage, id: str, size: int) -> Iterator[Delta]:
    for index, block in enumerate(message.content):
        match block:
            case TextBlock(text=text):
                yield from _pieces(Delta(kind="text", message_id=id, turn_id=message.turn_id, block=index), text, size)
            case ThinkingBlock(text=text):
                first = Delta(kind="thinking", message_id=id, turn_id=message.turn_id, block=index)
                yield from _pieces(first, text, size)
            case ToolCallBlock():
                first = Delta(
                    kind="toolCall", message_id=id, turn_id=message.turn_id, block=index, tool_name=block.name
                )
                yield from _pieces(first, arguments_text(block), size)
            case _:
                pass


def _pieces(first: Delta, text: str, size: int) -> Iterator[Delta]:
    for start in range(0, len(text), size):
        update: dict[str, str | None] = {"delta": text[start : start + size]}
        yield first.model_copy(update=update if start == 0 else {**update, "tool_name": None})
