"""Nodes of a conversation's tree, as an author that can go back in it numbers and tags them.

Where a session's log is the tree, positions say it all; these are kept for those who speak of nodes. Source: seed 001.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from bus.messages.base import Frozen

__all__ = ("TAG_OF", "NodeId", "NodeTag", "RevertCategory", "TagKind", "node_text", "parse_node_id")

_LARGEST = 2**64 - 1

NodeId = Annotated[int, Field(ge=0, le=_LARGEST)]
"""A number in JSON; `n12` where a model reads it."""

RevertCategory = Literal["failure", "tangent", "finding", "completion", "step-summary"]
"""Why a branch was left."""

TagKind = Literal["lesson", "finding", "outcome", "checkpoint"]

TAG_OF: Mapping[RevertCategory, TagKind] = MappingProxyType(
    {
        "failure": "lesson",
        "tangent": "finding",
        "finding": "finding",
        "completion": "outcome",
        "step-summary": "checkpoint",
    }
)
"""What the summary of a branch becomes at the node that was gone back to."""

_TEXT = re.compile(r"n?([0-9]{1,20})")


class NodeTag(Frozen):
    """What a branch that was left has taught, at the node it was left for. Its JSON has the names as they are."""

    kind: TagKind
    text: str
    created_at_turn: Annotated[int, Field(ge=0, le=2**32 - 1)]
    abandoned_node_ids: Annotated[tuple[NodeId, ...], Field(strict=False)]

    @property
    def is_decaying(self) -> bool:
        """A lesson or finding may be left out of a prompt after a while; an outcome or checkpoint stays."""
        return self.kind in {"lesson", "finding"}


def node_text(node: int) -> str:
    """The id as a model reads it, such as `n12`."""
    return f"n{node}"


def parse_node_id(text: str) -> int | None:
    """The id in `n12` or `12`; None where the text is neither, or the number needs more than 64 bits."""
    match = _TEXT.fullmatch(text)
    node = int(match[1]) if match else None
    return node if node is not None and node <= _LARGEST else None
