"""Seed 002: messages of a graph framework, first year."""

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
"""Reads both years' spellings. Writes each message as it was spelled; without an origin, in the first year's spelling.

Lossless by value: what our messages have no field for is stored in their metadata and written back.
"""
