"""An output item that the model is still streaming."""

from collections.abc import Iterator, Mapping

from lanebus.bus.messages.content import Block, TextBlock, ThinkingBlock
from lanebus.handlers.providers.common.answer import Piece, text_of
from lanebus.handlers.providers.common.request import Json
from lanebus.handlers.providers.openai.shared.fields import index_at, text_at

__all__ = ("GROWTH", "GrowingItem")

_PARTS = {
    "response.output_text.delta": "content_index",
    "response.refusal.delta": "content_index",
    "response.reasoning_summary_text.delta": "summary_index",
    "response.reasoning_text.delta": "content_index",
}
"""Kind of event → the event's key for the index of the part."""

_ARGUMENTS = "response.function_call_arguments.delta"

GROWTH = frozenset({*_PARTS, _ARGUMENTS})
"""Kinds of the events that extend an item."""


class GrowingItem:
    """One item that is still arriving. Returns its pieces, and its blocks so far if the whole item never arrives."""

    def __init__(self, index: int, item: Json, names: Mapping[str, str], numbers: dict[tuple[int, int], int]) -> None:
        """Start an item.

        Args:
            index: the item's index.
            item: the item's JSON at its start.
            names: see `ProviderRequest.tool_names`.
            numbers: (index of an item, index of a part in the item) → index of the block. New parts are added. All
                items of an answer share this dict.
        """
        self._index, self._item, self._names, self._numbers = index, item, names, numbers
        self._is_thinking = text_at(item, "type", "item", required=True) == "reasoning"
        self._texts: dict[int, str] = {}

    def begin(self) -> Iterator[Piece]:
        """Yield the first piece of a call. Yield nothing for other items: they start with their first text."""
        if self._item["type"] == "function_call":
            name = text_at(self._item, "name", "item", required=True)
            yield Piece("toolCall", text_of(self._item, "arguments"), self._number(0), self._names.get(name, name))

    def grow(self, kind: str, event: Json) -> Iterator[Piece]:
        """Yield the piece in an event whose kind is in `GROWTH`.

        Raises:
            DecodeError: the event does not have the form of its kind.
        """
        if kind == _ARGUMENTS:
            yield Piece("toolCall", text_at(event, "delta", "", required=True), self._number(0))
            return
        part, text = index_at(event, _PARTS[kind], ""), text_at(event, "delta", "", required=True)
        if not self._is_thinking:
            self._texts[part] = self._texts.get(part, "") + text
            yield Piece("text", text, self._number(part))
            return
        # All parts of a reasoning item become one thinking block; each part is a paragraph.
        gap = "\n\n" if self._texts and part not in self._texts else ""
        self._texts[part] = self._texts.get(part, "") + text
        yield Piece("thinking", gap + text, self._number(0))

    def blocks(self) -> list[Block]:
        """Return the blocks so far. An unfinished call becomes no block. Unfinished thinking has no signature."""
        texts = [text for _, text in sorted(self._texts.items())]
        if self._is_thinking:
            return [ThinkingBlock(text="\n\n".join(texts))] if texts else []
        return [TextBlock(text=text) for text in texts]

    def _number(self, part: int) -> int:
        return self._numbers.setdefault((self._index, part), len(self._numbers))
