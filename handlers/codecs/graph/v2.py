"""The codec of the second graph format: messages of the same graph framework, a year later."""

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
"""Reads two spellings: the spelling of the framework's documentation and the spelling of its code.

Each block is written as it was spelled. A block without an origin gets the spelling of the documentation. If that
spelling has no key for a field (a status, details, several references, an error's data), the block gets the spelling of
the code.

Lossless by value: JSON that lanebus messages have no field for is stored in the message's metadata and written back.
Timestamps are seconds; a number over 1e11 is milliseconds, which the TypeScript client writes.
"""
