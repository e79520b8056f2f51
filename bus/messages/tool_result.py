"""The message with a tool's result."""

from collections.abc import Iterable
from typing import Literal, Self
from uuid import uuid4

from pydantic import JsonValue

from lanebus.bus.errors import require_instance
from lanebus.bus.messages.content import Block, ToolCallBlock, ToolResultBlock
from lanebus.bus.messages.llm import LlmMessage, as_blocks, now_ms
from lanebus.bus.messages.text import result_text

__all__ = ("ToolResultMessage",)


class ToolResultMessage(LlmMessage):
    """The result of one tool call."""

    role: Literal["toolResult"] = "toolResult"
    tool_call_id: str
    tool_name: str | None = None
    is_error: bool = False
    structured: JsonValue = None
    """the result as JSON, if the tool returned JSON. `content` has the same result in the form for the model"""
    status: Literal["completed", "failed"] | None = None
    terminate: bool | None = None
    """whether the loop may end without another model call; None means no. The loop ends only if `terminate` is True in
    the results of all tool calls of the answer"""
    terminate_message: str | None = None
    """the text that replaces the model's answer if `terminate` ends the loop"""
    batch_id: str | None = None
    """id that results share if they come from one message. The `coding-agent` format has several results in a
    message"""

    def text_with_results(self) -> str:
        """Return the result's text. If the result has no text, return the result's JSON."""
        return result_text(self.content, self.structured)

    @classmethod
    def of(cls, call: ToolCallBlock | str, *content: Block | str, is_error: bool = False) -> Self:
        """Return the result of a call, stamped with the present time.

        Args:
            call: the tool call, or the id of the call. If it is an id, `tool_name` stays None.
            content: texts and blocks, in order.
            is_error: whether the tool failed.
        """
        require_instance("call", call, (ToolCallBlock, str), "pass a ToolCallBlock, or the id of a call")
        call_id, name = (call, None) if isinstance(call, str) else (call.id, call.name)
        return cls(
            tool_call_id=call_id, tool_name=name, content=as_blocks(content), is_error=is_error, timestamp=now_ms()
        )

    @classmethod
    def from_results(cls, results: Iterable[ToolResultBlock], *, batch_id: str | None = None) -> tuple[Self, ...]:
        """Return a message for each result block, stamped with the present time.

        Args:
            results: the result blocks of one message.
            batch_id: the id that several results share. None generates an id. A single result gets no id.
        """
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
        """Return the message for one result block, stamped with the present time."""
        return cls.from_results((result,))[0]

    def as_block(self) -> ToolResultBlock:
        """Return the result as a block, for formats with tool results inside other messages."""
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
