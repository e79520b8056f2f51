"""Counters of a worker since its start."""

from dataclasses import dataclass

__all__ = ("WorkerCounts",)


@dataclass(slots=True)
class WorkerCounts:
    """Counters for monitoring. They only grow."""

    runs: int = 0
    """calls of an agent"""
    leases_lost: int = 0
    """leases that expired, or could not be renewed, while the session was running"""
    rescheduled: int = 0
    """sessions that were scheduled again after an error or a `TryAgain`"""
    given_up: int = 0
    """failures that were recorded in a session's log, with a dead letter"""
    handed_back: int = 0
    """unfinished sessions that were returned to the group"""
