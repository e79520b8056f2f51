"""The differences between the codecs of the two graph formats, and the alternative key names that both codecs read."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ("ALIASES", "MESSAGE_ALIASES", "GraphDialect")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDialect:
    """How one graph format is written if a message has no origin."""

    name: str
    """The codec's name, which is stored in the origin."""
    spelling: Mapping[str, frozenset[str]]
    """Type of block → the alternative key names that are written. Other types have no alternative names."""
    has_document_text: bool
    has_remote_calls: bool
    writes_iso_time: bool
    """Whether moments are written as ISO 8601 text; otherwise they are float seconds."""


# The keys are the names of the first year. The documentation of the second year renames some of
# these keys; the code of the second year does not.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "tool_call": {"arguments": "args"},
    "remote_tool_call": {"arguments": "args"},
    "tool_result": {"tool_call_id": "call_id", "content": "output"},
    "reasoning": {"thinking": "summary"},
    "error": {"error": "message"},
}
"""For each type of block: alternative name of a key → the key's usual name."""

MESSAGE_ALIASES: Mapping[str, str] = {"usage": "usages", "tool_calls": "tools_calls"}
