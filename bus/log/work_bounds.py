"""Bounds of work: lengths of streams, periods of sweeps, and sizes of dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("WorkBounds",)

_EXACT = 100
"""Streams shorter than this are trimmed exactly. Approximate trimming is cheaper and keeps up to 100 more entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBounds:
    """Bounds and periods of consumer groups, of wake-ups and of change notices. Times are in seconds."""

    wake_ups: int = 1_000
    """maximum number of entries of a bucket's stream of wake-ups. If a wake-up was trimmed, a sweep finds the work"""
    notices: int = 10_000
    """maximum number of entries of a bucket's stream of change notices. A follower that missed a notice finds the
    change when it next compares its cursor with the session's head"""
    sweep_seconds: float = 5.0
    """seconds between two sweeps, which find work in all buckets even if a wake-up was lost. Consumers and
    `Session.wait_for_wake_up` use sweeps. A consumer with a shorter heartbeat sweeps more often"""
    block_seconds: float = 5.0
    """longest time that a read for wake-ups blocks. A shorter `sweep_seconds` shortens this time"""
    silence_seconds: float = 3.0
    """seconds beyond the block time of a read after which a missing reply means that the connection is dead"""
    read_wake_ups: int = 100
    """maximum number of wake-ups of one stream in one read of a consumer. The next read returns later wake-ups"""
    watched_wake_ups: int = 1_000
    """maximum number of wake-ups of one stream in one read for `Session.wait_for_wake_up`. After a read
    that returns this number, all waiting calls wake up, because wake-ups may have been missed"""
    watch_pause_seconds: float = 0.008
    """pause between two reads for `Session.wait_for_wake_up` that found wake-ups. The pause delays a wake-up by at most
    this time. It limits a worker with a busy stream to about a hundred reads per second instead of a thousand"""
    linger_seconds: float = 5.0
    """how long to keep reading wake-ups after the last call of `Session.wait_for_wake_up` has ended"""
    wait_seconds: float = 0.5
    """longest time that a consumer waits for wake-ups at a stretch"""
    cluster_wait_seconds: float = 1.0
    """the value of `wait_seconds` on a cluster, where each bucket has its own read"""
    first_pause_seconds: float = 0.01
    """shortest wait of a consumer, and its first backoff after the server became unreachable. The backoff doubles"""
    longest_pause_seconds: float = 0.5
    """longest backoff between two attempts to reach an unreachable server"""
    sweep_window_seconds: float = 0.02
    """buckets whose sweeps are due within this time are swept together"""
    named_sessions: int = 100
    """maximum number of sessions of a bucket to remember from wake-ups. A fetch also takes the leases of these
    sessions"""
    dead_letters: int = 250
    """maximum number of dead letters that a bucket keeps. Older letters are dropped"""
    redrive_page: int = 500
    """maximum number of dead letters to redrive in one step"""
    error_length: int = 500
    """maximum number of characters to keep of the reason for a retry"""
    reason_length: int = 2_000
    """maximum number of characters to keep of the reason for a dead letter"""
    raw_bytes: int = 16_384
    """maximum number of bytes to keep in a dead letter of the data that caused the failure"""
    forget_seconds: float = 86_400.0
    """a consumer that was silent for this long is no longer listed"""
    away_seconds: float = 7 * 86_400.0
    """a group is reported as away if all its consumers were silent for this long"""
    status_sessions: int = 50
    """maximum number of pending sessions that a group's status lists for each bucket"""
    lag_sessions: int = 2_000
    """maximum number of sessions of a bucket to count for `GroupStatus.lag`"""

    def __post_init__(self) -> None:
        check_bounds(
            self,
            "bounds.work",
            zero=(
                "wake_ups",
                "notices",
                "watch_pause_seconds",
                "linger_seconds",
                "error_length",
                "reason_length",
                "raw_bytes",
            ),
        )

    @property
    def wake_up_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of wake-ups."""
        return ("=" if self.wake_ups < _EXACT else "~"), self.wake_ups

    @property
    def notice_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of change notices."""
        return ("=" if self.notices < _EXACT else "~"), self.notices
