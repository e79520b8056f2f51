"""The bounds of publishing: how much is on its way, and how long it is tried."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("PublishBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBounds:
    """How much of what is published is on its way, and how long it is tried."""

    queue_bytes: int = 64 * 1_048_576
    """how much may wait to be sent; callers beyond it wait for room"""
    batch_count: int = 512
    batch_bytes: int = 4 * 1_048_576
    """how much goes out in one step, so that no step holds the server for long"""
    small_batch_count: int = 16
    """fewer publishes than this go out together; more are parted, so that two batches can take turns"""
    sessions: int = 10_000
    """sessions in which this process goes on with its numbers; in others it begins anew, and is not told there if the
    log lost what it had published before"""
    callers_at_once: int = 64
    """callers that are let into the queue, or told that their time is over, in one turn of the event loop: ten thousand
    at once held everything else up for a tenth of a second"""
    recovery_sessions: int = 64
    """sessions in trouble that are looked after in one round trip"""
    quarantine_attempts: int = 3
    """how often an append is tried again after a foreign entry was moved out of its way"""
    retry_seconds: float = 0.01
    retry_most_seconds: float = 0.5
    """the pause before what was not appended is tried again: the first, and the longest"""
    close_seconds: float = 5.0
    """how long closing a bus waits for publishes that are on their way"""
