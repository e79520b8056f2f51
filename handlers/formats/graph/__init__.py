"""Codecs of the graph formats: one graph framework, a year apart.

The two formats spell some blocks differently; `codec.py` has both codecs, `reader.py` and `writer.py` their two
directions. `messages.py` has the framework's message constructors, and two operations on a graph's list of messages.
"""

from lanebus.handlers.formats.graph.messages import (
    add_messages,
    attach_media,
    file_message,
    image_message,
    multimodal_message,
    text_message,
    tool_message,
    without_tools,
)

__all__ = (
    "add_messages",
    "attach_media",
    "file_message",
    "image_message",
    "multimodal_message",
    "text_message",
    "tool_message",
    "without_tools",
)
