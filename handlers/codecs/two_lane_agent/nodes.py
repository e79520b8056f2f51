"""Node ids as the two-lane agent shows them to a model, and the tags that a revert adds to nodes."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from lanebus.bus.messages.node import LARGEST_NODE, RevertCategory, TagKind

__all__ = ("TAG_OF", "node_text", "parse_node_id")

TAG_OF: Mapping[RevertCategory, TagKind] = MappingProxyType(
    {
        "failure": "lesson",
        "tangent": "finding",
        "finding": "finding",
        "completion": "outcome",
        "step-summary": "checkpoint",
    }
)
"""Category of a revert → kind of the tag at the target of the revert. The tag holds the summary of the branch."""

_TEXT = re.compile(r"n?([0-9]{1,20})")


def node_text(node: int) -> str:
    """Return a node's id as a model reads it, such as `n12`."""
    return f"n{node}"


def parse_node_id(text: str) -> int | None:
    """Return the node id 12 for `n12` or `12`. Return None for other text, or if the number needs more than 64 bits."""
    match = _TEXT.fullmatch(text)
    node = int(match[1]) if match else None
    return node if node is not None and node <= LARGEST_NODE else None
