"""What became of a worker's sessions, counted since it began."""

from dataclasses import dataclass

__all__ = ("WorkerCounts",)


@dataclass(slots=True)
class WorkerCounts:
    """Counts only grow. For those who watch; nothing is decided by them."""

    runs: int = 0
    """times that an agent was called"""
    leases_lost: int = 0
    """times that a session was another worker's in the middle of its work, or had to be taken for it"""
    rescheduled: int = 0
    """times that a session was left for later after an error, or because its agent asked for it"""
    given_up: int = 0
    """errors that were recorded as the session's answer"""
    handed_back: int = 0
    """sessions that were given to others unfinished"""
