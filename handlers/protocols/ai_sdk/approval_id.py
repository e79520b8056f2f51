"""The id of a tool approval in the AI SDK. It names the turn, the request, the shown arguments and the call.

So the answer needs nothing but this id, and approves no other arguments.
"""

import re
from typing import NamedTuple

from lanebus.bus.errors import DecodeError
from lanebus.bus.messages.turn import TurnId

__all__ = ("ApprovalId",)

_FORM = re.compile(r"([^@/]+)@([1-9][0-9]{0,15})/([0-9a-f]{64})/(.+)", re.DOTALL)


class ApprovalId(NamedTuple):
    """What an approval id names."""

    turn_id: TurnId
    position: int
    """position of the request for the approval. A second request for the same call has another position"""
    call_hash: str
    """`ToolCallBlock.call_hash` of the call that the client shows"""
    tool_call_id: str

    def __str__(self) -> str:
        return f"{self.turn_id}@{self.position}/{self.call_hash}/{self.tool_call_id}"

    @classmethod
    def read(cls, text: str, path: str) -> "ApprovalId":
        """Read an id as `str` writes it.

        Args:
            text: the id.
            path: path of the id, for the error.

        Raises:
            DecodeError: the text is no such id.
        """
        parts = _FORM.fullmatch(text)
        if parts is None:
            raise DecodeError(path, "is no approval id of this server: answer with the id of the approval request")
        turn, position, call_hash, call = parts.groups()
        return cls(TurnId.from_text(turn), int(position), call_hash, call)
