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
    dead_letters: int = 250
    """dead letters that are kept in a bucket, the newest"""
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
