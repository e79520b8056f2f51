"""The message with a model's answer."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lanebus.bus.messages.content import ThinkingBlock, ToolCallBlock
from lanebus.bus.messages.llm import Spoken
from lanebus.bus.messages.provider_errors import says_overflow
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
"""Why an answer, a turn or a loop ended."""


class AssistantMessage(Spoken):
    """A model's answer. Failed and aborted answers are included; `stop_reason` distinguishes them."""

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
    """the stop reason as the provider reported it, which may be more specific than `stop_reason`"""

    def tool_calls(self) -> Iterator[ToolCallBlock]:
        """Return the tool calls that the model requested, in order."""
        return (block for block in self.content if isinstance(block, ToolCallBlock))

    def thinking(self) -> Iterator[ThinkingBlock]:
        """Return the readable thinking blocks, in order."""
        return (block for block in self.content if isinstance(block, ThinkingBlock))

    def is_context_overflow(self, *, window: int | None = None, exact_001: bool = False) -> bool:
        """Return whether the call failed because the request exceeded the model's context window.

        Args:
            window: the context window in tokens. If given, also return True for an answer that stopped normally but
                whose input is larger than the window, because some providers truncate the request silently. None skips
                this check.
            exact_001: return the same result as the `two-lane-agent` system; see `says_overflow`.

        Source: the `two-lane-agent` system; the check for silent truncation is from pi.
        """
        if self.stop_reason == "error" and self.error_message is not None:
            return says_overflow(self.error_message, exact_001=exact_001)
        if window is None or exact_001 or self.stop_reason != "stop" or self.usage is None:
            return False
        return self.usage.input + self.usage.cache_read > window

    @property
    def is_failed(self) -> bool:
        """Whether the answer ended with an error or was aborted. A failed answer is in the log, not in the context."""
        return self.stop_reason in {"error", "aborted"}
