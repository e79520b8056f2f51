"""Define how the context shows one loop: the turns that it keeps unchanged, and the messages that replace other turns.

The log itself does not change. The JSON form is that of the `two-lane-agent` system.
"""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from lanebus.bus.messages.base import Frozen, Wire
from lanebus.bus.messages.message import Message

__all__ = ("CompactedSection", "CompactionBlock", "TurnRange")


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


Turn = Annotated[int, Field(ge=0)]
# Times are kept as text, because the `two-lane-agent` system writes nanoseconds, which a datetime cannot represent.
Moment = Annotated[str, AfterValidator(_moment)]


class TurnRange(Wire):
    """A range of turn indexes of one loop. Both ends are included."""

    start_turn: Turn
    end_turn: Turn

    @model_validator(mode="after")
    def _runs_forward(self) -> Self:
        if self.end_turn < self.start_turn:
            raise ValueError("endTurn is before startTurn")
        return self

    def __contains__(self, turn: object) -> bool:
        return isinstance(turn, int) and self.start_turn <= turn <= self.end_turn


class CompactedSection(Frozen):
    """A range of turns, and the messages that replace it in the context."""

    range: TurnRange
    messages: Annotated[tuple[Message, ...], Field(strict=False)] = ()


class CompactionBlock(Frozen):
    """Defines how a loop appears in the context: `keep_first` unchanged, then `keep_compacted`, then `keep_recent`.

    Source: the `two-lane-agent` system's `CompactionBlock`.
    """

    keep_first: TurnRange | None = None
    """range of the first turns, which stay unchanged; None for earlier loops"""
    keep_recent: CompactedSection | None = None
    """the latest turns, with long tool outputs shortened; None for earlier loops"""
    keep_compacted: CompactedSection | None = None
    """summary of the turns between `keep_first` and `keep_recent`, or of a whole earlier loop"""
    created_at: Annotated[Moment, Field(validation_alias="createdAt", serialization_alias="createdAt")]
    """time of the compaction in the form of RFC 3339"""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that follow `keep_first` in the context, in order."""
        sections = (self.keep_compacted, self.keep_recent)
        return tuple(message for section in sections if section for message in section.messages)
