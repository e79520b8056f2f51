"""Bounds of live deltas in this process. What a session keeps of them on the server is `LogBounds.live_bytes`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBounds:
    """How long live deltas of ended messages are kept, and how much of them this process remembers."""

    trim_bytes: int = 256 * 1024
    """Each time a session's live deltas grow by this many bytes, those of ended messages are removed."""
    cut_seconds: float = 60.0
    """How long a cut is kept at least, for readers that have seen its message begin."""
    endings: int = 1_000
    """Ended messages that a follower remembers."""
    first_pause: float = 0.05
    """Seconds between the first two tries to reach the server; doubled each time."""
    longest_pause: float = 1.0
    """The longest pause between two attempts to reach the server, in seconds."""
    spoken: int = 1_000
    """Sessions for which this process remembers its last preview."""
    kept_pieces: int = 20_000
    """Decoded live deltas kept for the next follower that joins: of all sessions together, or of one that has more."""
    kept_seconds: float = 10.0
    """How long they are kept after a follower has joined."""
