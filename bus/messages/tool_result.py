"""What a tool gave."""

from collections.abc import Iterable
from typing import Literal, Self
from uuid import uuid4

from pydantic import JsonValue

from lanebus.bus.messages.content import Block, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.llm import LlmMessage, as_blocks, now_ms
from lanebus.bus.messages.text import result_text

__all__ = ("ToolResultMessage",)


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
            tool_call_id=call_id, tool_name=name, content=as_blocks(content), is_error=is_error, timestamp=now_ms()
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
