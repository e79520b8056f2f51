"""Nodes of a conversation's tree, as an author that can go back in it numbers and tags them.

Where a session's log is the tree, positions say it all; these are kept for those who speak of nodes. Source: seed 001.
"""

from typing import Annotated, Literal

from pydantic import Field

from lanebus.bus.messages.base import Frozen

__all__ = ("LARGEST_NODE", "NodeId", "NodeTag", "RevertCategory", "TagKind")

LARGEST_NODE = 2**64 - 1

NodeId = Annotated[int, Field(ge=0, le=LARGEST_NODE)]
"""A number in JSON; `n12` where a model reads it."""

RevertCategory = Literal["failure", "tangent", "finding", "completion", "step-summary"]
"""Why a branch was left."""

TagKind = Literal["lesson", "finding", "outcome", "checkpoint"]


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
