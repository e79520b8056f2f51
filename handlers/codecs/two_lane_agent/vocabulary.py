"""Seed 001's names of enum values and ours."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

from lanebus.bus.errors import DecodeError

__all__ = ("CONTINUATION", "DELTA", "SCOPE", "TRIGGER", "to_ours", "to_theirs")

T = TypeVar("T", bound=str)

CONTINUATION: Mapping[str, Literal["initial", "default", "rerun", "branch", "compaction"]] = MappingProxyType(
    {"Initial": "initial", "Default": "default", "Rerun": "rerun", "Branch": "branch", "Compaction": "compaction"}
)
"""How a loop continues another one."""

TRIGGER: Mapping[str, Literal["user", "subAgent", "continuation", "branch"]] = MappingProxyType(
    # FollowUp is 001's old name of Continuation, which it still reads.
    {
        "User": "user",
        "SubAgent": "subAgent",
        "Continuation": "continuation",
        "Branch": "branch",
        "FollowUp": "continuation",
    }
)
"""Why a turn starts."""

DELTA: Mapping[str, Literal["text", "thinking", "toolCall"]] = MappingProxyType(
    {"Text": "text", "Thinking": "thinking", "ToolCallDelta": "toolCall"}
)
"""What kind of content a delta extends."""

SCOPE: Mapping[str, Literal["ephemeral", "persistent"]] = MappingProxyType(
    {"Ephemeral": "ephemeral", "Persistent": "persistent"}
)
"""How long 001 keeps a session. Ours are all persistent, so nothing else uses it."""


def to_ours(names: Mapping[str, T], theirs: str, path: str) -> T:
    """Return our name for theirs.

    Raises:
        DecodeError: they have no such name.
    """
    if theirs not in names:
        raise DecodeError(path, f"{theirs[:40]!r} is none of {', '.join(names)}")
    return names[theirs]


def to_theirs(names: Mapping[str, T], ours: str) -> str:
    """Return their name for ours: the first with this meaning."""
    return next(theirs for theirs, name in names.items() if name == ours)
