"""What is said in the LLM lane: one frozen class a role."""

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal, Self
from uuid import uuid4

from pydantic import Field, JsonValue

from bus.messages.base import Wire
from bus.messages.content import (
    AudioBlock,
    Block,
    Blocks,
    ImageBlock,
    Metadata,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from bus.messages.lanes import Lane
from bus.messages.media import MediaRef, Picture
from bus.messages.node import NodeId, NodeTag
from bus.messages.nulls import has_null_arguments, with_null_arguments
from bus.messages.overflow import says_overflow
from bus.messages.text import blocks_text, result_text
from bus.messages.turn import TurnId
from bus.messages.usage import Usage

__all__ = (
    "AssistantMessage",
    "DeveloperMessage",
    "LlmMessage",
    "Message",
    "StopReason",
    "SystemMessage",
    "ToolResultMessage",
    "UserMessage",
    "now_ms",
)

StopReason = Literal[
    "stop",
    "length",
    "toolUse",
    "error",
    "aborted",
    "maxTurns",
    "userStop",
    "handoff",
    "guardRail",
    "contextCompacted",
    "paused",
]

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


class _Spoken(LlmMessage):
    """The constructors of the roles that need nothing but what was said."""

    @classmethod
    def of(cls, *content: Block | str) -> Self:
        """Text and blocks in order, stamped with the present time."""
        return cls(content=_blocks(content), timestamp=now_ms())

    @classmethod
    def text(cls, text: str) -> Self:
        """One text, stamped with the present time."""
        return cls.of(text)


class SystemMessage(_Spoken):
    role: Literal["system"] = "system"


class DeveloperMessage(_Spoken):
    """Instructions that some providers rank above the system's; elsewhere they are merged with them."""

    role: Literal["developer"] = "developer"


class UserMessage(_Spoken):
    role: Literal["user"] = "user"

    @classmethod
    def with_images(cls, text: str, images: Iterable[bytes | str | Picture]) -> Self:
        """A text, then its images: bytes, URLs, base64 or Pillow images.

        Raises:
            DecodeError, pydantic.ValidationError: as `MediaRef.of`: one has no bytes, or is a path.
        """
        return cls.of(text, *(ImageBlock(media=MediaRef.of(image)) for image in images))

    @classmethod
    def with_audio(cls, text: str, clips: Iterable[bytes | str]) -> Self:
        """A text, then its sounds: bytes, URLs or base64.

        Raises:
            DecodeError, pydantic.ValidationError: as `MediaRef.of`: one has no bytes, or is a path.
        """
        return cls.of(text, *(AudioBlock(media=MediaRef.of(clip)) for clip in clips))


class AssistantMessage(_Spoken):
    """What a model said, failed and aborted answers too: `stop_reason` tells."""

    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason = "stop"
    model: str | None = None
    provider: str | None = None
    usage: Usage | None = None
    error_message: Annotated[
        str | None, Field(validation_alias="error_message", serialization_alias="error_message")
    ] = None
    response_id: str | None = None
    raw_stop_reason: str | None = None
    """the provider's own word, which may say more"""

    def tool_calls(self) -> Iterator[ToolCallBlock]:
        """The tools it wants to have run, in its order."""
        return (block for block in self.content if isinstance(block, ToolCallBlock))

    def thinking(self) -> Iterator[ThinkingBlock]:
        """Its readable thinking, in order."""
        return (block for block in self.content if isinstance(block, ThinkingBlock))

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """The model was asked for more than it can hold: it failed, and the provider's error says so.

        Args:
            window: the model's context window in tokens. With it, an answer that ended well counts too if more went in
                than fits: some providers cut the request and say nothing.
            exact_001: seed 001's own answer, see `says_overflow`.

        Source: seed 001; the silent overflow is pi's.
        """
        if self.stop_reason == "error" and self.error_message is not None:
            return says_overflow(self.error_message, exact_001=exact_001)
        if window is None or exact_001 or self.stop_reason != "stop" or self.usage is None:
            return False
        return self.usage.input + self.usage.cache_read > window

    @property
    def is_failed(self) -> bool:
        """It ended by an error or was aborted: it stays in the log and out of the context."""
        return self.stop_reason in {"error", "aborted"}


class ToolResultMessage(LlmMessage):
    """One tool's result, the answer to one call."""

    role: Literal["toolResult"] = "toolResult"
    tool_call_id: str
    tool_name: str | None = None
    is_error: bool = False
    structured: JsonValue = None
    """the result as JSON, where the tool gave JSON; `content` says the same to the model"""
    status: Literal["completed", "failed"] | None = None
    terminate: bool | None = None
    """no model call has to follow, if all results of the batch say so"""
    terminate_message: str | None = None
    """what is said in the model's place then"""
    batch_id: str | None = None
    """results that one message of seed 000 held share it"""

    def text_with_results(self) -> str:
        """The result's text; its JSON where it has no text."""
        return result_text(self.content, self.structured)

    @classmethod
    def of(cls, call: ToolCallBlock | str, *content: Block | str, is_error: bool = False) -> Self:
        """The answer to `call`, which may be known by its id alone, stamped with the present time."""
        call_id, name = (call, None) if isinstance(call, str) else (call.id, call.name)
        return cls(
            tool_call_id=call_id, tool_name=name, content=_blocks(content), is_error=is_error, timestamp=now_ms()
        )

    @classmethod
    def from_results(cls, results: Iterable[ToolResultBlock], *, batch_id: str | None = None) -> tuple[Self, ...]:
        """A message for each result of a batch, stamped with the present time; several share a `batch_id`, a new one
        where none is given."""
        blocks = tuple(results)
        shared = uuid4().hex if batch_id is None else batch_id
        batch = shared if len(blocks) > 1 else None
        now = now_ms()
        return tuple(
            cls(
                tool_call_id=block.tool_call_id,
                content=block.content,
                structured=block.structured,
                is_error=block.is_error,
                status=block.status,
                metadata=block.metadata,
                terminate=block.terminate,
                terminate_message=block.terminate_message,
                batch_id=batch,
                timestamp=now,
            )
            for block in blocks
        )

    @classmethod
    def from_result(cls, result: ToolResultBlock) -> Self:
        """The message that one result is, stamped with the present time."""
        return cls.from_results((result,))[0]

    def as_block(self) -> ToolResultBlock:
        """The result as a block of another message, as some systems have it."""
        return ToolResultBlock(
            tool_call_id=self.tool_call_id,
            content=self.content,
            structured=self.structured,
            is_error=self.is_error,
            status=self.status,
            metadata=self.metadata,
            terminate=self.terminate,
            terminate_message=self.terminate_message,
        )


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")
]


def _blocks(content: Iterable[Block | str]) -> tuple[Block, ...]:
    return tuple(TextBlock(text=part) if isinstance(part, str) else part for part in content)
