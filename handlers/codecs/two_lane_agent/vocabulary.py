"""Seed 001's words beside ours."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

from lanebus.bus.errors import DecodeError

__all__ = ("CONTINUATION", "DELTA", "SCOPE", "TRIGGER", "to_ours", "to_theirs")

T = TypeVar("T", bound=str)

CONTINUATION: Mapping[str, Literal["initial", "default", "rerun", "branch", "compaction"]] = MappingProxyType(
    {"Initial": "initial", "Default": "default", "Rerun": "rerun", "Branch": "branch", "Compaction": "compaction"}
)
"""How a loop goes on from another."""

TRIGGER: Mapping[str, Literal["user", "subAgent", "continuation", "branch"]] = MappingProxyType(
    # 001 called a continuation FollowUp before, and still reads that.
    {
        "User": "user",
        "SubAgent": "subAgent",
        "Continuation": "continuation",
        "Branch": "branch",
        "FollowUp": "continuation",
    }
)
"""What a turn begins for."""

DELTA: Mapping[str, Literal["text", "thinking", "toolCall"]] = MappingProxyType(
    {"Text": "text", "Thinking": "thinking", "ToolCallDelta": "toolCall"}
)
"""What a piece of a message is a piece of."""

SCOPE: Mapping[str, Literal["ephemeral", "persistent"]] = MappingProxyType(
    {"Ephemeral": "ephemeral", "Persistent": "persistent"}
)
"""How long 001 keeps a session. Ours are all persistent, so nothing else here asks for it."""


def to_ours(words: Mapping[str, T], theirs: str, path: str) -> T:
    """Our word for theirs.

    Raises:
        DecodeError: they have no such word.
    """
    if theirs not in words:
        raise DecodeError(path, f"{theirs[:40]!r} is none of {', '.join(words)}")
    return words[theirs]


def to_theirs(words: Mapping[str, T], ours: str) -> str:
    """Their word for ours: the first that means it."""
    return next(theirs for theirs, mine in words.items() if mine == ours)
