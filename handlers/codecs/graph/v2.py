"""Seed 003: messages of the same graph framework, a year later."""

from lanebus.handlers.codecs.graph.codec import graph_codec
from lanebus.handlers.codecs.graph.dialect import GraphDialect

__all__ = ("GRAPH_V2",)

GRAPH_V2 = graph_codec(
    GraphDialect(
        name="003",
        spelling={
            "tool_result": frozenset({"tool_call_id", "content"}),
            "reasoning": frozenset({"thinking"}),
            "annotation": frozenset({"annotation"}),
            "error": frozenset({"error"}),
        },
        has_document_text=True,
        has_remote_calls=True,
        writes_iso_time=False,
    ),
    "messages of the same framework a year later: tool_call_id and content, timestamps in seconds",
)
"""Reads both spellings, that of its documentation and that of its code. Writes each block as it was spelled.

A block without an origin gets the spelling of the documentation. Only what that spelling has no key for gets the
code's: a status, details, several references, an error's data.

Lossless by value: what our messages have no field for is stored in their metadata and written back. Timestamps are
seconds; a number over 1e11 is milliseconds, as the TypeScript client writes them.
"""
