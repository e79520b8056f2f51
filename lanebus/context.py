"""The context of a session, which its model sees, and functions that change the context: compact, branch, prune."""

from lanebus.handlers.context.branching import (
    SessionTree,
    branch,
    branch_with_summary,
    compact,
    compact_loops,
    label,
    prune,
    read_tree,
    revert,
    undo_compaction,
)
from lanebus.handlers.context.build import WarmContext, build_context
from lanebus.handlers.context.fold import Context, Fault, Misplaced, UnknownLeaf, UnknownTarget, evolve
from lanebus.handlers.context.loop_compaction import loops_of
from lanebus.handlers.context.tokens import (
    BY_BYTES,
    BY_CHARACTERS,
    HeadroomTrigger,
    ReserveTrigger,
    TokenEstimator,
    context_tokens,
    first_to_keep,
    usage_tokens,
)

__all__ = (
    "BY_BYTES",
    "BY_CHARACTERS",
    "Context",
    "Fault",
    "HeadroomTrigger",
    "Misplaced",
    "ReserveTrigger",
    "SessionTree",
    "TokenEstimator",
    "UnknownLeaf",
    "UnknownTarget",
    "WarmContext",
    "branch",
    "branch_with_summary",
    "build_context",
    "compact",
    "compact_loops",
    "context_tokens",
    "evolve",
    "first_to_keep",
    "label",
    "loops_of",
    "prune",
    "read_tree",
    "revert",
    "undo_compaction",
    "usage_tokens",
)
