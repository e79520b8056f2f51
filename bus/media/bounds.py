"""The bounds of reading and writing media, with their defaults."""

from dataclasses import dataclass

__all__ = ("DEFAULT_MEDIA_BOUNDS", "MediaBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBounds:
    """Bounds of the store on the bus's own server, and of `resolve_media` with any store."""

    slowest_bytes_a_second: int = 1_048_576
    """a connection to the bus's own server that transfers media more slowly counts as dead"""
    together: int = 8
    """how many media `resolve_media` loads at the same time"""


DEFAULT_MEDIA_BOUNDS = MediaBounds()
