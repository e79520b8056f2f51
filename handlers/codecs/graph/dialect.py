"""The differences between the two codecs, and the alternative names that both read."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ("ALIASES", "MESSAGE_ALIASES", "GraphDialect")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDialect:
    """One seed's JSON, as it is written without an origin."""

    name: str
    """The codec's name, which is stored in the origin."""
    spelling: Mapping[str, frozenset[str]]
    """Type of block → the alternative key names it is written with; other types have none."""
    has_document_text: bool
    has_remote_calls: bool
    writes_iso_time: bool
    """Write moments as ISO 8601 text; otherwise as float seconds."""


# The keys have the first year's names. The second year's documentation renames some of them; its code did not. Source:
# seeds 002 and 003.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "tool_call": {"arguments": "args"},
    "remote_tool_call": {"arguments": "args"},
    "tool_result": {"tool_call_id": "call_id", "content": "output"},
    "reasoning": {"thinking": "summary"},
    "error": {"error": "message"},
}
"""Type of block → alternative name of a key → the key."""

MESSAGE_ALIASES: Mapping[str, str] = {"usage": "usages", "tool_calls": "tools_calls"}
