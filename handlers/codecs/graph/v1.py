"""The codec of the first graph format: messages of a graph framework, first year."""

from lanebus.handlers.codecs.graph.codec import graph_codec
from lanebus.handlers.codecs.graph.dialect import GraphDialect

__all__ = ("GRAPH_V1",)

GRAPH_V1 = graph_codec(
    GraphDialect(
        name="002",
        spelling={},
        has_document_text=False,
        has_remote_calls=False,
        writes_iso_time=True,
    ),
    "messages of a graph framework: call_id and output, ISO 8601 timestamps",
)
"""Reads the spellings of both graph formats. Writes each message in the spelling in which it was read. A message
without an origin is written in the first format's spelling.

Lossless by value: JSON that lanebus messages have no field for is stored in the message's metadata and written back.
"""
