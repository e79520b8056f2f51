"""Live deltas: pieces of a message while the model still generates it. They are in no durable lane.

Deltas are LLM content: a client without access to the LLM lane may not read them.

A preview always ends, and no delta follows its end. It ends with a message of the same id in the LLM lane: the
complete message, or the text so far if the model was stopped or its worker lost. Without any text, it ends with a `cut`
that gives the reason.

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
    """the `id` of the complete message"""
    turn_id: TurnId | None = None
    delta: str = ""
    """text to append; for a tool call, a fragment of its JSON arguments; for a cut, the reason"""
    block: int = 0
    """index of the block in the message, from 0"""
    tool_name: str | None = None
    """the tool's name, on the first piece of a tool call"""
    is_snapshot: bool | None = None
    """True: `delta` is the whole text of its block so far and replaces what was shown. Sent to a follower that joins
    during a preview"""
