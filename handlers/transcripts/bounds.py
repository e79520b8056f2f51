"""The bounds of an import, with their defaults."""

from dataclasses import dataclass

__all__ = ("DEFAULT_TRANSCRIPT_BOUNDS", "TranscriptBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBounds:
    """How much of a transcript is in memory, and in flight to the log, at a time."""

    batch_bytes: int = 1_048_576
    """bytes of the file read at a time"""
    batch_lines: int = 512
    """lines of the file read at a time"""
    lines_to_detect: int = 100
    """first lines searched to detect the format, not counting blank ones"""
    under_way: int = 64
    """most publishes in flight"""
    under_way_bytes: int = 16 * 1_048_576
    """most bytes of lines in flight"""
    held: int = 256
    """Claude Code: most lines that wait for the end of an answer; no known answer has as many"""
    held_bytes: int = 8 * 1_048_576
    """Claude Code: most bytes of these lines"""
    clusters: int = 64
    """Claude Code: most answers remembered for their tool results"""


DEFAULT_TRANSCRIPT_BOUNDS = TranscriptBounds()
