"""Base classes of the messages of the LLM lane."""

import time
from collections.abc import Iterable
from typing import Annotated, ClassVar, Self

from pydantic import Field, JsonValue

from lanebus.bus.errors import require_instance
from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.content import Block, Blocks, Metadata, TextBlock
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.node import NodeId, NodeTag
from lanebus.bus.messages.nulls import has_null_arguments, with_null_arguments
from lanebus.bus.messages.text import blocks_text
from lanebus.bus.messages.turn import TurnId

__all__ = ("LlmMessage", "Spoken", "as_blocks", "now_ms")

# The order of the keys in the JSON is meant for people: role, content, result, time.
_KEYS = (
    *("role", "tool_call_id", "tool_name", "content", "structured", "is_error", "status"),
    *("stop_reason", "raw_stop_reason", "model", "provider", "usage", "timestamp", "error_message", "turn_id", "id"),
)


def now_ms() -> int:
    """Return the present time for a message's timestamp: milliseconds since 1970 UTC.

    Messages are ordered by position, not by timestamp.
    """
    return time.time_ns() // 1_000_000


class LlmMessage(Wire):
    """A message of the LLM lane. This is the base class; each role has a subclass.

    Source: the `two-lane-agent` system's `LlmMessage`, whose JSON is the plain message with an optional `turnId`.
    """

    lane: ClassVar[Lane] = Lane.LLM

    content: Blocks = ()
    timestamp: int | None = None
    """time of the message by the author's clock, in milliseconds since 1970 UTC"""
    turn_id: TurnId | None = None
    """the turn that the message belongs to. None for imported history, and until a loop processes the message"""
    id: str | None = None
    """the author's own id for the message. In the log, the position identifies the message"""
    name: str | None = None
    """the author's name, if the role is not enough"""
    metadata: Metadata | None = None
    """private data, never sent to a provider"""
    raw: JsonValue = None
    """the provider's own object for the message; None if it was not kept. It is never sent to a provider"""
    node_id: NodeId | None = None
    """the message's node in the author's conversation tree; None if the author's system has no tree"""
    parent_id: NodeId | None = None
    """the parent node of `node_id`"""
    tags: Annotated[tuple[NodeTag, ...] | None, Field(strict=False)] = None
    """lessons from branches that the author abandoned"""
    provenance_hint: JsonValue = None
    """the origin of the message, as the author's system recorded it"""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """Order the fields so that the JSON begins with `role`. Pydantic would put this base class's fields first."""
        names = cls.__pydantic_fields__
        first = {name: names[name] for name in _KEYS if name in names}
        cls.__pydantic_fields__ = {**first, **names}
        cls.model_rebuild(force=True)

    def to_json_bytes(self) -> bytes:
        """Return the message's JSON as it is stored in the log. Null arguments of a tool call stay null."""
        data = self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)
        return with_null_arguments(data, self.content) if has_null_arguments(self.content) else data

    def text_content(self) -> str:
        """Return the text of all text blocks, joined without a separator; "" if there are no text blocks."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    def text_with_results(self) -> str:
        """Return the text of all text blocks and tool results, joined without a separator.

        If a tool result has JSON but no text, its JSON is part of the returned text.
        """
        return blocks_text(self.content)

    def as_llm(self) -> "LlmMessage":
        """Return this message. For a message that is not for a model, `ExtensionMessage.as_llm` returns None."""
        return self

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """Return False. Only an assistant message can report a context overflow."""
        del window, exact_001
        return False

    def with_turn_id(self, turn_id: TurnId | None) -> Self:
        """Return a copy with another turn id; None removes it."""
        return self.model_copy(update={"turn_id": turn_id})

    def with_node(self, node_id: NodeId | None, parent_id: NodeId | None) -> Self:
        """Return a copy with another node of the author's tree."""
        return self.model_copy(update={"node_id": node_id, "parent_id": parent_id})


class Spoken(LlmMessage):
    """Base class of the messages that need only content. It defines the constructors `of` and `text`."""

    @classmethod
    def of(cls, *content: Block | str) -> Self:
        """Return a message with the texts and blocks of `content`, stamped with the present time."""
        return cls(content=as_blocks(content), timestamp=now_ms())

    @classmethod
    def text(cls, text: str) -> Self:
        """Return a message with one text, stamped with the present time."""
        return cls.of(text)


def as_blocks(content: Iterable[Block | str]) -> tuple[Block, ...]:
    """Return the content as blocks. A text becomes a `TextBlock`; a block does not change."""
    blocks = tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
    for block in blocks:
        require_instance("content", block, Wire, "pass texts and blocks, such as TextBlock(text=…)")
    return blocks
