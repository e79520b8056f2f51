"""Live deltas: pieces of a message while the model is still speaking. They are in no durable lane.

They are LLM content: who may not read the LLM lane may not read them. A preview always ends: by the whole message
with the same id in the LLM lane, or by a `cut` with its reason.
"""

from typing import Literal

from bus.messages.base import Wire
from bus.messages.turn import TurnId

__all__ = ("Delta",)


class Delta(Wire):
    """One piece. In JSON: `{"role":"delta","kind":"text","messageId":…,"delta":…}`."""

    role: Literal["delta"] = "delta"
    kind: Literal["text", "thinking", "toolCall", "cut"]
    message_id: str
    """the `id` that the whole message will have"""
    turn_id: TurnId | None = None
    delta: str = ""
    """text to append; for a tool call a fragment of its JSON arguments; for a cut the reason"""
    block: int = 0
    """which block of the message it belongs to, from 0"""
    tool_name: str | None = None
    """of a tool call, on its first piece"""
