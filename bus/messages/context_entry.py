"""Entries of the LLM lane that steer the context and are themselves no message: only the context builder reads them.

A position names an entry here, so the tree of a session needs no other ids: each entry of the LLM lane follows the
leaf, which is the entry before it unless a `LeafMove` says otherwise.
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
    """In JSON: `{"role":"context","kind":…}` and the kind's own fields."""

    lane: ClassVar[Lane] = Lane.LLM

    role: Literal["context"] = "context"
    id: str | None = None
    """the id it had where it was imported from"""
    timestamp: int | None = None
    """milliseconds UTC"""
    metadata: Metadata | None = None


class Compaction(ContextEntry):
    """From here on the context starts with `summary`, then what is kept from before, then what follows."""

    kind: Literal["compaction"] = "compaction"
    summary: str
    first_kept: Position | None = None
    """the first entry before this one that stays in the context; None keeps nothing"""
    tokens_before: int | None = None
    provider: str | None = None
    model: str | None = None
    """who wrote the summary; None where no model did, or nobody knows"""
    usage: Usage | None = None
    """what that took. It counts as a model call of the session, and of no turn"""


class LoopCompaction(ContextEntry):
    """From here on one loop is read as `block` says. The last one of a loop counts, for what came before it."""

    kind: Literal["loopCompaction"] = "loopCompaction"
    loop_id: str
    block: CompactionBlock


class Prune(ContextEntry):
    """From here on these entries are left out of the context; a memo is read in their place. They stay in the log.

    A compaction that is left out is undone: what it had told shorter is read in full again.
    """

    kind: Literal["prune"] = "prune"
    pruned: Annotated[tuple[Position, ...], Field(strict=False)]
    memo: str | None = None
    """None: nothing tells that something was there"""


class BranchSummary(ContextEntry):
    """What happened on a branch that the session came back from."""

    kind: Literal["branchSummary"] = "branchSummary"
    summary: str
    branch: Position | None = None
    """the last entry of that branch"""


class LeafMove(ContextEntry):
    """What follows continues after `to`, as if the entries after it had not been; they stay in the log."""

    kind: Literal["leafMove"] = "leafMove"
    to: Position | None = None
    """None is the place before the first entry"""


class ModelChange(ContextEntry):
    kind: Literal["modelChange"] = "modelChange"
    provider: str
    model: str


class ThinkingLevelChange(ContextEntry):
    kind: Literal["thinkingLevelChange"] = "thinkingLevelChange"
    level: str


class Label(ContextEntry):
    """A user's name for an entry; None takes the name away."""

    kind: Literal["label"] = "label"
    target: Position
    label: str | None = None


AnyContextEntry = Annotated[
    Compaction | LoopCompaction | Prune | BranchSummary | LeafMove | ModelChange | ThinkingLevelChange | Label,
    Field(discriminator="kind"),
]
