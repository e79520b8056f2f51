"""An output item while the model still speaks it."""

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
"""what grows → how its event calls the number of the part"""

_ARGUMENTS = "response.function_call_arguments.delta"

GROWTH = frozenset({*_PARTS, _ARGUMENTS})
"""kinds of the events that an item grows by"""


class GrowingItem:
    """What was told of one item: pieces as they come, and what they amount to if the whole item never does."""

    def __init__(self, index: int, item: Json, names: Mapping[str, str], numbers: dict[tuple[int, int], int]) -> None:
        """
        Args:
            index: the item's number.
            names: see `ProviderRequest.tool_names`.
            numbers: number of an item and of a part → which block it is; shared by the items of an answer.
        """
        self._index, self._item, self._names, self._numbers = index, item, names, numbers
        self._is_thinking = text_at(item, "type", "item", required=True) == "reasoning"
        self._texts: dict[int, str] = {}

    def begin(self) -> Iterator[Piece]:
        """The piece that tells of a call; other items begin with their first text."""
        if self._item["type"] == "function_call":
            name = text_at(self._item, "name", "item", required=True)
            yield Piece("toolCall", text_of(self._item, "arguments"), self._number(0), self._names.get(name, name))

    def grow(self, kind: str, event: Json) -> Iterator[Piece]:
        """The piece that an event of `GROWTH` tells.

        Raises:
            DecodeError: it has not the shape of its kind.
        """
        if kind == _ARGUMENTS:
            yield Piece("toolCall", text_at(event, "delta", "", required=True), self._number(0))
            return
        part, text = index_at(event, _PARTS[kind], ""), text_at(event, "delta", "", required=True)
        if not self._is_thinking:
            self._texts[part] = self._texts.get(part, "") + text
            yield Piece("text", text, self._number(part))
            return
        # Thinking is one block, in which the parts are paragraphs.
        gap = "\n\n" if self._texts and part not in self._texts else ""
        self._texts[part] = self._texts.get(part, "") + text
        yield Piece("thinking", gap + text, self._number(0))

    def blocks(self) -> list[Block]:
        """What is known of it. A call is not, before its end; nor does thinking have a signature."""
        texts = [text for _, text in sorted(self._texts.items())]
        if self._is_thinking:
            return [ThinkingBlock(text="\n\n".join(texts))] if texts else []
        return [TextBlock(text=text) for text in texts]

    def _number(self, part: int) -> int:
        return self._numbers.setdefault((self._index, part), len(self._numbers))
