"""Seed 003: the messages of the same graph framework a year later."""

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
"""Reads both spellings, that of its page and that of its code, and writes each block as it was spelled. Without an
origin it is the page's, but for what only the code's can say: a status, details, several references, an error's data.

Lossless by value: whatever our messages have no field for stands in their metadata and is written back. Timestamps are
seconds; a number over 1e11 is milliseconds, as the TypeScript client writes them.
"""
