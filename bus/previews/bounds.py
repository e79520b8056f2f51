"""Bounds of live deltas in one process. `LogBounds.live_bytes` and `live_seconds` bound them on the server."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBounds:
    """When a process removes live deltas of ended messages, and how many live deltas it caches."""

    trim_bytes: int = 256 * 1024
    """Growth of a session's live deltas, in bytes, after which those of ended messages are removed."""
    cut_seconds: float = 60.0
    """Least time in seconds that a cut is kept, for readers that have seen its message begin."""
    endings: int = 1_000
    """Most ended messages that a follower remembers."""
    first_pause: float = 0.05
    """Seconds between the first two attempts to reach the server; each pause doubles."""
    longest_pause: float = 1.0
    """The longest pause between two attempts to reach the server, in seconds."""
    spoken: int = 1_000
    """Most sessions for which this process remembers the number of its last preview."""
    kept_pieces: int = 20_000
    """Most decoded live deltas cached for the next follower, over all sessions; a single session may exceed it."""
    kept_seconds: float = 10.0
    """Seconds that they are cached after a follower has read them."""
