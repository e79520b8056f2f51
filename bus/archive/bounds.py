"""How large a segment grows."""

from dataclasses import dataclass

__all__ = ("ArchiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveBounds:
    """How large a segment grows; reached, the next one begins."""

    text_bytes: int = 8 * 1_048_576
    """The most bytes of lines in a segment, unless one entry alone has more."""
    entries: int = 10_000
    """The most entries in a segment."""
