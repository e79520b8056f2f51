"""The bounds of an import, each with its default.

Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from dataclasses import dataclass

__all__ = ("DEFAULT_TRANSCRIPT_BOUNDS", "TranscriptBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBounds:
    """How much of a transcript is in memory, and on its way to the log, at a time."""

    batch_bytes: int = 1_048_576
    batch_lines: int = 512
    """how much of the file is read at a time"""
    lines_to_detect: int = 100
    """lines that are looked at to find the format; blank ones do not count"""
    under_way: int = 64
    under_way_bytes: int = 16 * 1_048_576
    """lines that are published at a time"""
    held: int = 256
    held_bytes: int = 8 * 1_048_576
    """of Claude Code: lines that wait behind an answer's; no answer has had as many"""
    clusters: int = 64
    """of Claude Code: answers whose results may still come"""


DEFAULT_TRANSCRIPT_BOUNDS = TranscriptBounds()
