"""Codecs of the graph formats: one graph framework, a year apart.

The two formats spell some blocks differently. The package also has the framework's message constructors, and two
operations on a graph's list of messages.
"""

from lanebus.handlers.codecs.graph.constructors import (
    attach_media,
    file_message,
    image_message,
    multimodal_message,
    text_message,
    tool_message,
)
from lanebus.handlers.codecs.graph.message_list import add_messages, without_tools

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
