"""The bounds of work: lengths of its streams, periods of its sweeps, and sizes of dead letters."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("WorkBounds",)

_EXACT = 100
"""Streams shorter than this are trimmed exactly. Approximate trimming is cheaper and keeps up to 100 more entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBounds:
    """Bounds and periods of consumer groups, of wake-ups and of change notices. Times are in seconds."""

    wake_ups: int = 1_000
    """most entries of a bucket's stream of wake-ups; a sweep finds the work of trimmed ones"""
    notices: int = 10_000
    """most entries of a bucket's stream of change notices; a follower that missed one finds the change when it next
    compares its cursor with the head"""
    sweep: float = 5.0
    """period of sweeps over all buckets, by a consumer and by the reader for workers that wait for a wake-up; a
    consumer with a shorter heartbeat sweeps more often"""
    block: float = 5.0
    """longest blocking read for wake-ups; a shorter `sweep` shortens it"""
    silence: float = 3.0
    """how much longer than its block time a read may take before its connection is considered dead"""
    read: int = 100
    """most wake-ups of one stream in one read of a consumer; later ones stay in the stream for the next read"""
    heard: int = 1_000
    """most wake-ups of one stream in one read for workers that wait for a wake-up; a full read may have missed some"""
    heard_pause: float = 0.008
    """pause between two such reads that found wake-ups. It delays a wake-up by at most this time, and limits a worker
    with a busy stream to about a hundred reads per second instead of a thousand"""
    linger: float = 5.0
    """how long to keep reading wake-ups after the last waiting worker has left"""
    look: float = 0.5
    """longest single wait of a consumer for wake-ups"""
    look_bucket: float = 1.0
    """the same on a cluster, where each bucket has its own read"""
    shortest: float = 0.01
    """shortest wait of a consumer, and its first backoff when the server is lost; the backoff doubles"""
    longest_pause: float = 0.5
    """longest backoff between two attempts to reach a lost server"""
    together: float = 0.02
    """buckets with sweeps due within this time are swept together"""
    named: int = 100
    """most sessions of a bucket to remember from wake-ups; a fetch also takes their leases"""
    dead_letters: int = 250
    """most dead letters of a bucket, the newest ones"""
    redrive_page: int = 500
    """most dead letters to redrive in one step"""
    error_length: int = 500
    """most characters to keep of the reason for a retry"""
    reason_length: int = 2_000
    """most characters to keep of the reason for a dead letter"""
    raw_bytes: int = 16_384
    """most bytes of the faulty entry to keep in a dead letter"""
    forget: float = 86_400.0
    """a consumer that was silent for this long is no longer listed"""
    away: float = 7 * 86_400.0
    """a group is reported as away if all its consumers were silent for this long"""
    named_works: int = 50
    """most sessions of a bucket that a group's status names as assigned to a consumer"""
    lag_counted: int = 2_000
    """most sessions of a bucket that a group's status counts as waiting for a consumer"""

    @property
    def wake_up_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of wake-ups."""
        return ("=" if self.wake_ups < _EXACT else "~"), self.wake_ups

    @property
    def notice_trim(self) -> tuple[str, int]:
        """The MAXLEN arguments of XADD for the stream of change notices."""
        return ("=" if self.notices < _EXACT else "~"), self.notices
