"""In what the two codecs differ, and the other names that both read."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ("ALIASES", "MESSAGE_ALIASES", "GraphDialect")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDialect:
    """One seed's JSON, as it is written where no origin says otherwise."""

    name: str
    """the codec's name, which stands in the origin"""
    spelling: Mapping[str, frozenset[str]]
    """type of a block → which of the other names of its keys it is written with; none for the types left out"""
    has_document_text: bool
    has_remote_calls: bool
    writes_iso_time: bool
    """a moment is ISO 8601 text; else it is float seconds"""


# The first year's names are the keys' own; the second year's page has some of its own. Source: seeds 002 and 003, and
# their code, which kept the first ones.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "tool_call": {"arguments": "args"},
    "remote_tool_call": {"arguments": "args"},
    "tool_result": {"tool_call_id": "call_id", "content": "output"},
    "reasoning": {"thinking": "summary"},
    "error": {"error": "message"},
}
"""Type of a block → another name of a key → the key."""

MESSAGE_ALIASES: Mapping[str, str] = {"usage": "usages", "tool_calls": "tools_calls"}
