"""Live deltas: pieces of a message while the model is still speaking. They are in no durable lane.

They are LLM content: who may not read the LLM lane may not read them. A preview always ends: by a message with the
same id in the LLM lane, which is the whole one, or what was said until its speaker was stopped or lost; or, where
nothing was said, by a `cut` with its reason. No piece is shown after that.

To show a preview, append each piece to the text of its message and block; a snapshot replaces that text.
"""

from typing import Literal

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.turn import TurnId

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
    is_snapshot: bool | None = None
    """`delta` is all that was said of its block up to here: it takes the place of what was shown, and nothing is lost
    or doubled for whom has a part of it. Made for a follower that joins while the message is spoken."""
