"""The bounds of work: how long its streams are, how often it is looked for, how much is kept of what failed."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("WorkBounds",)

_EXACT = 100
"""Below this a stream is trimmed exactly; approximately is cheaper, and keeps up to a hundred entries more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBounds:
    """Bounds and periods of consumer groups, of wake-ups and of change notices. Times are in seconds."""

    wake_ups: int = 1_000
    """entries of a bucket's stream of wake-ups; what was trimmed away is found by a sweep"""
    notices: int = 10_000
    """entries of a bucket's stream of change notices; a follower that missed one compares its cursor now and then"""
    sweep: float = 5.0
    """between two sweeps over all buckets, of a consumer and of those who wait for a word at work; a consumer's shorter
    heartbeat makes its own shorter"""
    block: float = 5.0
    """most time that one read waits for a wake-up; a shorter `sweep` makes it shorter"""
    silence: float = 3.0
    """how much longer than it should wait such a read may take before its connection counts as dead"""
    read: int = 100
    """wake-ups of one stream in one read of a consumer; a wake-up only says where to look, so none is missed"""
    heard: int = 1_000
    """wake-ups of one stream in one read for those who wait for a word at work; a full read counts as one that missed
    some"""
    heard_pause: float = 0.008
    """Between two such reads that found something. A word is so much late at most, and a busy stream costs a worker a
    hundred reads a second and not a thousand"""
    linger: float = 5.0
    """how long wake-ups are read on after the last one who waited for a word left"""
    look: float = 0.5
    """how often a consumer that waits looks up, at least"""
    look_bucket: float = 1.0
    """the same on a cluster, where each bucket is waited for by itself"""
    shortest: float = 0.01
    """the shortest wait of a consumer, and its first pause where the server is lost; that doubles"""
    longest_pause: float = 0.5
    """between two tries to reach a lost server, at most"""
    together: float = 0.02
    """buckets whose sweep is due so soon are swept together"""
    named: int = 100
    """sessions of a bucket that are remembered from wake-ups: the leases of those are taken as they are fetched"""
    dead_letters: int = 250
    """dead letters that are kept in a bucket, the newest"""
    redrive_page: int = 500
    """dead letters that are sent on their way in one step"""
    error_length: int = 500
    """characters that are kept of why work was put off"""
    reason_length: int = 2_000
    """characters that are kept of why work was set aside"""
    raw_bytes: int = 16_384
    """bytes that a dead letter keeps of what was at fault"""
    forget: float = 86_400.0
    """after which a silent consumer is no longer listed"""
    away: float = 7 * 86_400.0
    """without a sign of life of any consumer after which a group is reported as away"""
    named_works: int = 50
    """works in hand of a bucket that a group's status names"""
    lag_counted: int = 2_000
    """works of a bucket that a group's status counts as not given"""

    @property
    def wake_up_trim(self) -> tuple[str, int]:
        """How the stream of wake-ups is trimmed, as XADD takes it."""
        return ("=" if self.wake_ups < _EXACT else "~"), self.wake_ups

    @property
    def notice_trim(self) -> tuple[str, int]:
        """How the stream of change notices is trimmed."""
        return ("=" if self.notices < _EXACT else "~"), self.notices
