"""Bounds of publishing: how much is queued and in flight, and how long it is retried."""

from __future__ import annotations

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("PublishBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBounds:
    """How much is queued and in flight at a time, and how long publishes are retried."""

    queue_bytes: int = 64 * 1_048_576
    """maximum number of bytes of JSON that wait to be sent; further callers wait for room"""
    batch_count: int = 512
    """maximum number of publishes in a batch, so that no batch blocks the server for long"""
    batch_bytes: int = 4 * 1_048_576
    """maximum number of bytes of JSON in a batch, so that no batch blocks the server for long"""
    small_batch_count: int = 16
    """up to this many publishes are sent as one batch. More are divided into two batches of about the same
    size, which can both be in flight"""
    sessions: int = 10_000
    """maximum number of sessions for which this process remembers the number of its last append. For a forgotten
    session the process starts a new term, and does not notice if the log lost the process's earlier publishes"""
    callers_at_once: int = 64
    """maximum number of callers that are admitted to the queue, or time out, in one turn of the event loop. Ten
    thousand callers in one turn blocked the loop for 0.1 s"""
    recovery_sessions: int = 64
    """maximum number of sessions to recover in one round trip, such as after lost replies"""
    quarantine_attempts: int = 3
    """how often an append is retried after foreign entries were quarantined"""
    first_pause_seconds: float = 0.01
    """first pause before an append is retried. Each further pause is twice as long"""
    longest_pause_seconds: float = 0.5
    """longest pause before an append is retried"""
    close_seconds: float = 5.0
    """longest time that closing a bus waits for queued and sent publishes"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.publish", zero=("quarantine_attempts", "close_seconds"))
