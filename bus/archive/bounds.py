"""The bounds of the archive."""

from dataclasses import dataclass

__all__ = ("ArchiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBounds:
    """The size at which a new segment begins."""

    text_bytes: int = 8 * 1_048_576
    """Most bytes of lines in a segment, uncompressed. A single larger entry gets a segment of its own."""
    entries: int = 10_000
    """Most entries in a segment."""
