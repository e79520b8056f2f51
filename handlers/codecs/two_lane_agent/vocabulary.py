"""The two-lane agent's names of enum values → lanebus's names."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeVar

from lanebus.bus.errors import DecodeError

__all__ = ("CONTINUATION", "DELTA", "SCOPE", "TRIGGER", "to_ours", "to_theirs")

T = TypeVar("T", bound=str)

CONTINUATION: Mapping[str, Literal["initial", "default", "rerun", "branch", "compaction"]] = MappingProxyType(
    {"Initial": "initial", "Default": "default", "Rerun": "rerun", "Branch": "branch", "Compaction": "compaction"}
)
"""How a loop continues another loop: the two-lane agent's name → lanebus's name."""

TRIGGER: Mapping[str, Literal["user", "subAgent", "continuation", "branch"]] = MappingProxyType(
    # FollowUp is the two-lane agent's old name of Continuation. The two-lane agent still reads the old name.
    {
        "User": "user",
        "SubAgent": "subAgent",
        "Continuation": "continuation",
        "Branch": "branch",
        "FollowUp": "continuation",
    }
)
"""Why a turn starts: the two-lane agent's name → lanebus's name."""

DELTA: Mapping[str, Literal["text", "thinking", "toolCall"]] = MappingProxyType(
    {"Text": "text", "Thinking": "thinking", "ToolCallDelta": "toolCall"}
)
"""Which kind of content a delta extends: the two-lane agent's name → lanebus's name."""

SCOPE: Mapping[str, Literal["ephemeral", "persistent"]] = MappingProxyType(
    {"Ephemeral": "ephemeral", "Persistent": "persistent"}
)
"""How long a session is kept: the two-lane agent's name → lanebus's name. lanebus keeps every session, so no other
module uses this map."""


def to_ours(names: Mapping[str, T], theirs: str, path: str) -> T:
    """Return lanebus's name for the two-lane agent's name `theirs`.

    Raises:
        DecodeError: `names` has no key `theirs`.
    """
    if theirs not in names:
        raise DecodeError(path, f"{theirs[:40]!r} is none of {', '.join(names)}")
    return names[theirs]


def to_theirs(names: Mapping[str, T], ours: str) -> str:
    """Return the two-lane agent's name for lanebus's name `ours`. If several names mean `ours`, return the first."""
    return next(theirs for theirs, name in names.items() if name == ours)
