"""The context of a session: the messages that a model sees, folded from the LLM lane.

The same entries always produce the same context. Start with `fold.py` for the fold, `build.py` for reading a session,
and `branching.py` for the entries that steer a context. `handlers/providers` turns a context into a request.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.context.build import (
        DEFAULT_PAST_BOUNDS,
        PastBounds,
        PastContexts,
        build_context,
        fold_kept,
        require_whole,
        unreadable_up_to,
    )
    from lanebus.handlers.context.cutting import cut_text
    from lanebus.handlers.context.errors import ContextTooLarge, UnknownLeaf
    from lanebus.handlers.context.fold import (
        Context,
        Pairing,
        branch_message,
        evolve,
        find,
        prune_message,
        visible_context,
    )
    from lanebus.handlers.context.folds import ENTRY_BYTES, RESTS, Breather, RecentSessions
    from lanebus.handlers.context.json_fields import (
        Object,
        as_flag,
        as_list,
        as_object,
        as_text,
        as_whole,
        below,
        first_fault,
        made,
    )
    from lanebus.handlers.context.persistent_list import FlatList, PersistentList
    from lanebus.handlers.context.read_marks import (
        DEFERRED,
        READ_UP_TO,
        deferred_positions,
        is_mark,
        is_prompt,
        left_over,
        read_position,
    )
    from lanebus.handlers.context.tokens import (
        BY_BYTES,
        TokenEstimator,
        context_tokens,
        first_to_keep,
    )

__all__ = (
    "BY_BYTES",
    "DEFAULT_PAST_BOUNDS",
    "DEFERRED",
    "ENTRY_BYTES",
    "READ_UP_TO",
    "RESTS",
    "Breather",
    "Context",
    "ContextTooLarge",
    "FlatList",
    "Object",
    "Pairing",
    "PastBounds",
    "PastContexts",
    "PersistentList",
    "RecentSessions",
    "TokenEstimator",
    "UnknownLeaf",
    "as_flag",
    "as_list",
    "as_object",
    "as_text",
    "as_whole",
    "below",
    "branch_message",
    "build_context",
    "context_tokens",
    "cut_text",
    "deferred_positions",
    "evolve",
    "find",
    "first_fault",
    "first_to_keep",
    "fold_kept",
    "is_mark",
    "is_prompt",
    "left_over",
    "made",
    "prune_message",
    "read_position",
    "require_whole",
    "unreadable_up_to",
    "visible_context",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.context.build": (
                "DEFAULT_PAST_BOUNDS",
                "PastBounds",
                "PastContexts",
                "build_context",
                "fold_kept",
                "require_whole",
                "unreadable_up_to",
            ),
            "lanebus.handlers.context.cutting": ("cut_text",),
            "lanebus.handlers.context.errors": (
                "ContextTooLarge",
                "UnknownLeaf",
            ),
            "lanebus.handlers.context.fold": (
                "Context",
                "Pairing",
                "branch_message",
                "evolve",
                "find",
                "prune_message",
                "visible_context",
            ),
            "lanebus.handlers.context.folds": (
                "Breather",
                "ENTRY_BYTES",
                "RESTS",
                "RecentSessions",
            ),
            "lanebus.handlers.context.json_fields": (
                "Object",
                "as_flag",
                "as_list",
                "as_object",
                "as_text",
                "as_whole",
                "below",
                "first_fault",
                "made",
            ),
            "lanebus.handlers.context.persistent_list": (
                "FlatList",
                "PersistentList",
            ),
            "lanebus.handlers.context.read_marks": (
                "DEFERRED",
                "READ_UP_TO",
                "deferred_positions",
                "is_mark",
                "is_prompt",
                "left_over",
                "read_position",
            ),
            "lanebus.handlers.context.tokens": (
                "BY_BYTES",
                "TokenEstimator",
                "context_tokens",
                "first_to_keep",
            ),
        },
    )
