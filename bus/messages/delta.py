"""Live deltas are pieces of a message that the model is still generating. They are in no durable lane.

Deltas are LLM content: a client without access to the LLM lane may not read them.

A preview always ends, and no delta follows its end. It ends with a message of the same id in the LLM lane: the
complete message, or the text so far if the model was stopped or the worker was lost. If there is no text so far, the
preview ends with a `cut` that gives the reason.

To show a preview, append each delta to the text of its message and block. A snapshot replaces the text of its block.
"""

from typing import Annotated, Literal

from pydantic import Field

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.turn import TurnId

__all__ = ("Delta",)


class Delta(Wire):
    """One piece of a message. In JSON: `{"role":"delta","kind":"text","messageId":…,"delta":…}`."""

    role: Literal["delta"] = "delta"
    kind: Literal["text", "thinking", "toolCall", "cut"]
    message_id: str
    """the `id` of the complete message"""
    turn_id: TurnId | None = None
    delta: str = ""
    """the text to append: for kind "toolCall" a fragment of the JSON arguments, for kind "cut" the reason of the cut"""
    block: Annotated[int, Field(ge=0, lt=10_000)] = 0
    """index of the block in the message, from 0; less than 10,000"""
    tool_name: str | None = None
    """the tool's name, on the first delta of a tool call"""
    is_snapshot: bool | None = None
    """True if `delta` is the whole text of its block so far. The text then replaces the text that was shown. None
    means no. A follower that joins during a preview gets snapshots"""
