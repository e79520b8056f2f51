"""Bounds of the archive."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("ArchiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBounds:
    """Sizes at which a segment is full and a new segment begins."""

    text_bytes: int = 8 * 1_048_576
    """Maximum number of bytes of uncompressed lines in a segment. An entry that is larger than this gets a segment of
    its own."""
    entries: int = 10_000
    """Maximum number of entries in a segment."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.archive")
