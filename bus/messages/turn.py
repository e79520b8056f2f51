"""The id of a turn."""

from typing import Annotated

from pydantic import Field

from lanebus.bus.digits import number_in
from lanebus.bus.errors import DecodeError, require_text
from lanebus.bus.messages.base import Wire

__all__ = ("TurnId",)


class TurnId(Wire):
    """The id of a turn: one model call with its tools. In JSON: `{"loopId":"s1.main.1","turnIndex":0}`."""

    loop_id: str
    """`<session>.<config>.<N>`. N counts the loops of each session and config, from 1"""
    turn_index: Annotated[int, Field(ge=0)]
    """number of the turn in its loop, from 0"""

    @classmethod
    def from_text(cls, text: str, session: str | None = None) -> "TurnId":
        """Read an id as `str` writes it, such as `support-42.main.3#0`.

        Args:
            text: the id.
            session: id of the session that a short id such as `main.3#0` belongs to. `lanebus turns` prints short ids.
                None reads `text` as it is.

        Raises:
            DecodeError: the text is no turn id.
        """
        require_text("text", text)
        loop_id, _, digits = text.rpartition("#")
        index = number_in(digits)
        if not loop_id or index is None:
            raise DecodeError("", f"{text[:100]!r} is not a turn id: write one such as support-42.main.3#0")
        # A loop id has two dots. A loop id with fewer dots names no session, even if it begins with the session's name.
        is_short = session is not None and loop_id.count(".") < 2
        return cls(loop_id=f"{session}.{loop_id}" if is_short else loop_id, turn_index=index)

    @property
    def session(self) -> str:
        """The session id: the part of `loop_id` before the first dot, or all of `loop_id` if it has no dot."""
        return self.loop_id.partition(".")[0]

    @property
    def config_segment(self) -> str | None:
        """The configuration in `loop_id`: the text between the first and last dot. None if there are fewer than two."""
        parts = self.loop_id.split(".")
        return ".".join(parts[1:-1]) if len(parts) > 2 else None

    def __str__(self) -> str:
        return f"{self.loop_id}#{self.turn_index}"
