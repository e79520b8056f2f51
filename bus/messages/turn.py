"""Which turn of which loop a message belongs to."""

from typing import Annotated

from pydantic import Field

from bus.messages.base import Wire

__all__ = ("TurnId",)


class TurnId(Wire):
    """One model call with its tools. In JSON: `{"loopId":"s1.main.1","turnIndex":0}`."""

    loop_id: str
    """`<session>.<config>.<N>`, N from 1 for each session and config"""
    turn_index: Annotated[int, Field(ge=0)]
    """from 0 in each loop"""

    def __str__(self) -> str:
        return f"{self.loop_id}#{self.turn_index}"
