"""What all messages of the LLM lane have in common."""

import time
from collections.abc import Iterable
from typing import Annotated, ClassVar, Self

from pydantic import Field, JsonValue

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.content import Block, Blocks, Metadata, TextBlock
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.node import NodeId, NodeTag
from lanebus.bus.messages.nulls import has_null_arguments, with_null_arguments
from lanebus.bus.messages.text import blocks_text
from lanebus.bus.messages.turn import TurnId

__all__ = ("LlmMessage", "Spoken", "as_blocks", "now_ms")

# The keys of the JSON in the order a person reads them: who speaks, what is said, what came of it, when.
_KEYS = (
    *("role", "tool_call_id", "tool_name", "content", "structured", "is_error", "status"),
    *("stop_reason", "raw_stop_reason", "model", "provider", "usage", "timestamp", "error_message", "turn_id", "id"),
)


def now_ms() -> int:
    """This moment as messages write it: milliseconds UTC. Order never comes from it; positions give the order."""
    return time.time_ns() // 1_000_000


class LlmMessage(Wire):
    """A message of the LLM lane, with the turn it belongs to: seed 001's `LlmMessage`.

    Only its subclasses are messages, one a role. In JSON it is the bare message with an optional `turnId`.
    """

    lane: ClassVar[Lane] = Lane.LLM

    content: Blocks = ()
    timestamp: int | None = None
    """milliseconds UTC, as its author's clock said"""
    turn_id: TurnId | None = None
    """None only for imported history and for what no loop took up yet"""
    id: str | None = None
    """its author's id for it, where there is one; its place in the log is its position"""
    name: str | None = None
    """of the author, where the role alone does not say who"""
    metadata: Metadata | None = None
    """private: on no provider's wire"""
    raw: JsonValue = None
    """the provider's own object, where it was kept: on no provider's wire"""
    node_id: NodeId | None = None
    """its node in the author's own tree of the conversation, where it keeps one; ours is told by positions"""
    parent_id: NodeId | None = None
    """the node it follows there"""
    tags: Annotated[tuple[NodeTag, ...] | None, Field(strict=False)] = None
    """what was learnt on branches that the author went back from"""
    provenance_hint: JsonValue = None
    """where a request had it from, as its author's system says"""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: object) -> None:
        """The JSON begins with `role`: a base's fields come first by themselves, and those hold what comes last."""
        names = cls.__pydantic_fields__
        first = {name: names[name] for name in _KEYS if name in names}
        cls.__pydantic_fields__ = {**first, **names}
        cls.model_rebuild(force=True)

    def to_json_bytes(self) -> bytes:
        """The message as it goes into the log; null arguments of a tool call stay null in it."""
        data = self.__pydantic_serializer__.to_json(self, by_alias=True, exclude_none=True)
        return with_null_arguments(data, self.content) if has_null_arguments(self.content) else data

    def text_content(self) -> str:
        """All text blocks joined, with nothing between them; "" if there are none."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    def text_with_results(self) -> str:
        """All text, that of tool results too, with nothing between it; a result that is JSON alone as JSON."""
        return blocks_text(self.content)

    def as_llm(self) -> "LlmMessage":
        """This message: it is one for the model. An extension answers None."""
        return self

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """False: only a model's answer tells that."""
        del window, exact_001
        return False

    def with_turn_id(self, turn_id: TurnId | None) -> Self:
        """The same message stamped with another turn; None clears the stamp."""
        return self.model_copy(update={"turn_id": turn_id})

    def with_node(self, node_id: NodeId | None, parent_id: NodeId | None) -> Self:
        """The same message as another node of its author's tree."""
        return self.model_copy(update={"node_id": node_id, "parent_id": parent_id})


class Spoken(LlmMessage):
    """The constructors of the roles that need nothing but what was said."""

    @classmethod
    def of(cls, *content: Block | str) -> Self:
        """Text and blocks in order, stamped with the present time."""
        return cls(content=as_blocks(content), timestamp=now_ms())

    @classmethod
    def text(cls, text: str) -> Self:
        """One text, stamped with the present time."""
        return cls.of(text)


def as_blocks(content: Iterable[Block | str]) -> tuple[Block, ...]:
    """Texts as blocks, and blocks as they are."""
    return tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
