"""Nodes of a conversation tree, for agent systems that number and tag nodes themselves. Source: the `two-lane-agent`
system.

The bus itself needs no nodes: positions in the log define the tree.
"""

from typing import Annotated, Literal

from pydantic import Field

from lanebus.bus.messages.base import Frozen

__all__ = ("LARGEST_NODE", "NodeId", "NodeTag", "RevertCategory", "TagKind")

LARGEST_NODE = 2**64 - 1

NodeId = Annotated[int, Field(ge=0, le=LARGEST_NODE)]
"""A node's number in the author's conversation tree. It is a number in JSON, and `n12` in text for a model."""

RevertCategory = Literal["failure", "tangent", "finding", "completion", "step-summary"]
"""The reason for leaving a branch."""

TagKind = Literal["lesson", "finding", "outcome", "checkpoint"]


class NodeTag(Frozen):
    """Something learned in an abandoned branch, stored at the node where the conversation continued."""

    kind: TagKind
    text: str
    created_at_turn: Annotated[int, Field(ge=0, le=2**32 - 1)]
    abandoned_node_ids: Annotated[tuple[NodeId, ...], Field(strict=False)]

    @property
    def is_decaying(self) -> bool:
        """Whether a prompt may drop the tag after some turns: true for lessons and findings."""
        return self.kind in {"lesson", "finding"}
