"""The bounds of media on their way, each with its default.

Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from dataclasses import dataclass

__all__ = ("DEFAULT_MEDIA_BOUNDS", "MediaBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBounds:
    """How media are stored on the bus's own server, and looked up in any store."""

    slowest_bytes_a_second: int = 1_048_576
    """a connection that is slower than this with media counts as dead"""
    together: int = 8
    """media of one request that are looked up at a time"""


DEFAULT_MEDIA_BOUNDS = MediaBounds()
