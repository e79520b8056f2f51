"""Bounds of reading and writing media."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_MEDIA_BOUNDS", "MediaBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaBounds:
    """Bounds of the media store on the bus's own server, and of `resolve_media` with any media store."""

    slowest_bytes_a_second: int = 1_048_576
    """slowest transfer of media, in bytes a second. A slower connection to the bus's own server is treated as dead"""
    loads_at_once: int = 8
    """maximum number of media that `resolve_media` loads at the same time"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.media")


DEFAULT_MEDIA_BOUNDS = MediaBounds()
