"""What a model said."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lanebus.bus.messages.content import ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.llm import Spoken
from lanebus.bus.messages.overflow import says_overflow
from lanebus.bus.messages.usage import Usage

__all__ = ("AssistantMessage", "StopReason")

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


class AssistantMessage(Spoken):
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
