"""Entries of the LLM lane that change the context but are not messages. Only the context builder reads them.

These entries refer to other entries by position, so a session's tree needs no other ids. Each entry of the LLM lane is
a child of the leaf. The leaf is the previous entry, unless a `LeafMove` selected another entry.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from lanebus.bus.messages.base import Frozen, Wire
from lanebus.bus.messages.content import Metadata
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.message import Message
from lanebus.bus.messages.usage import Usage

# Define how the context shows one loop: the turns that it keeps unchanged, and the messages that replace other turns.
#
# The log itself does not change. The JSON form is that of the `two-lane-agent` system.


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


Position = Annotated[int, Field(ge=1)]


class ContextEntry(Wire):
    """The base class of the context entries. In JSON: `{"role":"context","kind":…}` and the fields of the kind."""

    lane: ClassVar[Lane] = Lane.LLM

    role: Literal["context"] = "context"
    id: str | None = None
    """the entry's id in the system that it was imported from"""
    timestamp: int | None = None
    """time of the entry by the author's clock, in milliseconds since 1970 UTC"""
    metadata: Metadata | None = None


class Compaction(ContextEntry):
    """Replace earlier entries by a summary.

    The context then consists of `summary`, the earlier entries from `first_kept` on, and all later entries.
    """

    kind: Literal["compaction"] = "compaction"
    summary: str
    first_kept: Position | None = None
    """position of the first earlier entry that stays in the context; None keeps no earlier entry"""
    tokens_before: int | None = None
    provider: str | None = None
    model: str | None = None
    """the model that wrote the summary; None if no model did, or if it is unknown"""
    usage: Usage | None = None
    """usage of the call that wrote the summary. It is part of the session's usage, but of no turn's usage"""


class LoopCompaction(ContextEntry):
    """Replace one loop's earlier turns in the context, as `block` defines. Only the latest entry for a loop applies."""

    kind: Literal["loopCompaction"] = "loopCompaction"
    loop_id: str
    block: CompactionBlock


class Prune(ContextEntry):
    """Leave entries out of the context, with an optional memo in their place. The entries stay in the log.

    Pruning a compaction undoes the compaction: the context contains the original entries again.
    """

    kind: Literal["prune"] = "prune"
    pruned: Annotated[tuple[Position, ...], Field(strict=False)]
    memo: str | None = None
    """text that replaces the pruned entries in the context; None leaves them out without a text"""


class BranchSummary(ContextEntry):
    """A summary of a branch that the session left."""

    kind: Literal["branchSummary"] = "branchSummary"
    summary: str
    branch: Position | None = None
    """position of the last entry of the branch"""


class LeafMove(ContextEntry):
    """Continue after the entry `to`, as if later entries did not exist. The later entries stay in the log."""

    kind: Literal["leafMove"] = "leafMove"
    to: Position | None = None
    """position of the entry to continue after; None continues before the first entry"""


class ModelChange(ContextEntry):
    """The user selected another model."""

    kind: Literal["modelChange"] = "modelChange"
    provider: str
    model: str


class ThinkingLevelChange(ContextEntry):
    """The user selected another level of thinking."""

    kind: Literal["thinkingLevelChange"] = "thinkingLevelChange"
    level: str


class Label(ContextEntry):
    """Set the label that a user gave to the entry at `target`. A `label` of None removes the entry's label."""

    kind: Literal["label"] = "label"
    target: Position
    label: str | None = None


AnyContextEntry = Annotated[
    Compaction | LoopCompaction | Prune | BranchSummary | LeafMove | ModelChange | ThinkingLevelChange | Label,
    Field(discriminator="kind"),
]
