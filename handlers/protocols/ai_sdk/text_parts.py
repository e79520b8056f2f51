"""The text and reasoning parts of a UI message: one is open at a time, in the order in which the model wrote them."""

from collections import Counter

from lanebus.bus.messages.assistant import AssistantMessage
from lanebus.bus.messages.content import TextBlock, ThinkingBlock
from lanebus.handlers.protocols.ai_sdk.chunk import Chunk

__all__ = ("TextParts",)


class TextParts:
    """Opens and closes parts, and knows what they show of the present answer."""

    def __init__(self) -> None:
        self._text: str | None = None
        """id of the text part that is open"""
        self._thought: str | None = None
        self._numbers = Counter[str]()
        """number of the text parts of each answer"""
        self._shown_text, self._shown_thoughts = list[str](), list[str]()

    def begin_answer(self) -> None:
        """Forget what is shown, because another answer begins."""
        self._shown_text, self._shown_thoughts = [], []

    def add_text(self, message_id: str, text: str) -> list[Chunk]:
        """Return the chunks that append text."""
        chunks: list[Chunk] = []
        if self._text is None:
            chunks += self.end()
            self._numbers[message_id] += 1
            self._text = f"{message_id}.text{self._numbers[message_id]}"
            chunks.append({"type": "text-start", "id": self._text})
        self._shown_text.append(text)
        return [*chunks, {"type": "text-delta", "id": self._text, "delta": text}]

    def add_thought(self, thought: str, text: str) -> list[Chunk]:
        """Return the chunks that append to a passage of reasoning."""
        chunks: list[Chunk] = []
        if self._thought != thought:
            chunks += self.end()
            self._thought = thought
            chunks.append({"type": "reasoning-start", "id": thought})
        self._shown_thoughts.append(text)
        return [*chunks, {"type": "reasoning-delta", "id": thought, "delta": text}]

    def end_thought(self, thought: str) -> list[Chunk]:
        """Return the end of a passage of reasoning, if it is open."""
        return self.end() if self._thought == thought else []

    def end(self) -> list[Chunk]:
        """Return the end of the open part."""
        chunks: list[Chunk] = []
        if self._text is not None:
            chunks.append({"type": "text-end", "id": self._text})
        if self._thought is not None:
            chunks.append({"type": "reasoning-end", "id": self._thought})
        self._text = self._thought = None
        return chunks

    def shows(self, message: AssistantMessage) -> bool:
        """Return whether the parts show all text and reasoning of an answer, and nothing else."""
        thoughts = "".join(block.text for block in message.thinking())
        return "".join(self._shown_text) == message.text_content() and "".join(self._shown_thoughts) == thoughts

    def add_whole(self, message_id: str, message: AssistantMessage) -> list[Chunk]:
        """Return the chunks that show all text and reasoning of an answer, in new parts."""
        chunks = self.end()
        for index, block in enumerate(message.content):
            if isinstance(block, TextBlock) and block.text:
                chunks += self.add_text(message_id, block.text)
            elif isinstance(block, ThinkingBlock) and block.text:
                chunks += self.add_thought(f"{message_id}.whole{index}", block.text)
        return [*chunks, *self.end()]
