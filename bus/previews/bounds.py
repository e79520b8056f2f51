"""Bounds of live deltas in one process. Their bounds on the server are `LogBounds.live_bytes` and `live_seconds`."""

from __future__ import annotations

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("LiveBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBounds:
    """When a process removes the live deltas of ended messages, and how many live deltas it caches."""

    trim_bytes: int = 256 * 1024
    """Each time a session's live deltas have grown by this many bytes, the deltas of ended messages are removed."""
    cut_seconds: float = 60.0
    """Minimum time in seconds for which a delta of kind "cut" is kept. Readers that have seen the beginning of the cut
    message need this delta."""
    endings: int = 1_000
    """Maximum number of ended messages that a follower remembers, to drop live deltas that arrive after the end."""
    first_pause_seconds: float = 0.05
    """Seconds between the first two attempts to reach the server. Each further pause is twice as long."""
    longest_pause_seconds: float = 1.0
    """Longest pause between two attempts to reach the server, in seconds."""
    sessions: int = 1_000
    """Maximum number of sessions for which this process remembers which live deltas it published last."""
    cached_deltas: int = 20_000
    """Maximum number of decoded live deltas that are cached for the next follower, over all sessions. A single session
    may have more."""
    cached_seconds: float = 10.0
    """Seconds for which a session's live deltas stay in the cache after a follower has read them."""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.live", zero=("cut_seconds", "cached_seconds"))
