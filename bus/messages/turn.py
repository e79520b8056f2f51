"""The id of a turn."""

from typing import Annotated

from pydantic import Field

from lanebus.bus.messages.base import Wire

__all__ = ("TurnId",)


class TurnId(Wire):
    """The id of a turn: one model call with its tools. In JSON: `{"loopId":"s1.main.1","turnIndex":0}`."""

    loop_id: str
    """`<session>.<config>.<N>`; N counts from 1 for each session and config"""
    turn_index: Annotated[int, Field(ge=0)]
    """counts from 0 in each loop"""

    @property
    def session(self) -> str:
        """The session id: the part of `loop_id` before the first dot; without a dot, all of it. Source: seed 001."""
        return self.loop_id.partition(".")[0]

    @property
    def config_segment(self) -> str | None:
        """The configuration in the loop's id: the text between the first and last dot; None with one dot or none."""
        parts = self.loop_id.split(".")
        return ".".join(parts[1:-1]) if len(parts) > 2 else None

    def __str__(self) -> str:
        return f"{self.loop_id}#{self.turn_index}"
