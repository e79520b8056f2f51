"""Entries of the LLM lane that change the context but are not messages. Only the context builder reads them.

These entries refer to other entries by position, so a session's tree needs no other ids. Each entry of the LLM lane is
a child of the leaf. The leaf is the previous entry, unless a `LeafMove` selected another entry.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from lanebus.bus.messages.base import Wire
from lanebus.bus.messages.compaction_block import CompactionBlock
from lanebus.bus.messages.content import Metadata
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.messages.usage import Usage

__all__ = (
    "AnyContextEntry",
    "BranchSummary",
    "Compaction",
    "ContextEntry",
    "Label",
    "LeafMove",
    "LoopCompaction",
    "ModelChange",
    "Position",
    "Prune",
    "ThinkingLevelChange",
)

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
