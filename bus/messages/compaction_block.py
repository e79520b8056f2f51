"""A loop told shorter: which of its turns stay as they were, and what is read in place of the others.

It lies over the log and removes nothing from it. Its JSON is seed 001's own.
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
# The text stays as it was: seed 001 writes nanoseconds, which no datetime holds.
Moment = Annotated[str, AfterValidator(_moment)]


class TurnRange(Wire):
    """Turns of one loop by their turn index, both ends included."""

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
    """Turns, and what is read in their place."""

    range: TurnRange
    messages: Annotated[tuple[Message, ...], Field(strict=False)] = ()


class CompactionBlock(Frozen):
    """What is read of a loop: its first turns as they were, then `keep_compacted`, then `keep_recent`.

    Source: seed 001's `CompactionBlock`.
    """

    keep_first: TurnRange | None = None
    """as they stand in the log; only of the latest loop"""
    keep_recent: CompactedSection | None = None
    """with the tools' long outputs cut; only of the latest loop"""
    keep_compacted: CompactedSection | None = None
    """summaries: of the turns between, or of a whole earlier loop"""
    created_at: Annotated[Moment, Field(validation_alias="createdAt", serialization_alias="createdAt")]
    """RFC 3339"""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is read behind the first turns, in order."""
        sections = (self.keep_compacted, self.keep_recent)
        return tuple(message for section in sections if section for message in section.messages)
