"""The bounds of an import, with their defaults."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.bus.messages.json_parser import DEFAULT_JSON_BOUNDS, JsonBounds

__all__ = ("DEFAULT_TRANSCRIPT_BOUNDS", "TranscriptBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptBounds:
    """Bounds on the part of a transcript that is in memory, or in flight to the log, at a time."""

    batch_bytes: int = 1_048_576
    """bytes of the file read at a time"""
    batch_lines: int = 512
    """lines of the file read at a time"""
    lines_to_detect: int = 100
    """number of lines at the start of the file, without blank lines, that are searched to detect the format"""
    publishes_in_flight: int = 64
    """maximum number of publishes in flight"""
    bytes_in_flight: int = 16 * 1_048_576
    """maximum number of bytes of lines in flight"""
    waiting_lines: int = 256
    """maximum number of lines held back until the parent of the first of them is read. Claude Code: as many until an
    answer is complete. No known answer needs this many"""
    waiting_bytes: int = 8 * 1_048_576
    """maximum number of bytes of the lines held back, for a parent and for an answer"""
    recent_answers: int = 64
    """Claude Code: number of recent answers that are remembered, so that tool results further down can be moved to
    them"""

    json: JsonBounds = DEFAULT_JSON_BOUNDS
    """how much memory the values of a line, or of a file that is one JSON document, may take"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("bytes_in_flight", "waiting_lines", "waiting_bytes"))


DEFAULT_TRANSCRIPT_BOUNDS = TranscriptBounds()
