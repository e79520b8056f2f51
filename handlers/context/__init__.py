"""What a model sees: the fold over the LLM lane. Its forms for providers are in `handlers.providers`."""

from handlers.context.budget import HeadroomTrigger, ReserveTrigger, first_to_keep
from handlers.context.build import WarmContext, build_context
from handlers.context.errors import Misplaced, UnknownLeaf, UnknownTarget
from handlers.context.fold import Context, Fault, evolve
from handlers.context.session_tree import SessionTree, read_tree
from handlers.context.shortened import BlockSettings, block_of, blocks_of
from handlers.context.steering import (
    branch,
    branch_with_summary,
    compact,
    compact_loops,
    label,
    prune,
    revert,
    undo_compaction,
)
from handlers.context.tokens import BY_BYTES, BY_CHARACTERS, TokenEstimator, context_tokens, usage_tokens
from handlers.context.turn_list import loops_of

__all__ = (
    "BY_BYTES",
    "BY_CHARACTERS",
    "BlockSettings",
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
    "block_of",
    "blocks_of",
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
