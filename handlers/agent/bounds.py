"""The bounds, periods and limits of a worker and of its runs, each with its default.

Tests pass tiny ones: what only holds at large bounds is a fault.
"""

from dataclasses import dataclass

__all__ = ("DEFAULT_WORKER_BOUNDS", "WorkerBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBounds:
    """The bounds of one worker. Times are in seconds."""

    warm_sessions: int = 4_096
    """most sessions that stay in memory between their turns; those being worked on do not count"""
    warm_entries: int = 400_000
    """most entries of the LLM lane that stay in memory between turns, over all sessions"""
    store_every: int = 500
    """Positions between two stored states of a session. A cold start reads at most so much of the extension lane. A
    stored state also keeps what is behind it from being trimmed, so a short session has none."""
    pause: float = 0.25
    """first pause before a session is tried again that another worker holds or that could not be read; it doubles"""
    longest_pause: float = 60.0
    hand_back: float = 3.0
    """most time to hand an unfinished session to another worker"""
    ignored: int = 3
    """An agent that ran so often without answering the oldest command answers none."""
    deaths: int = 10
    """A session that was given so often without an outcome kills its workers: it becomes a dead letter."""


DEFAULT_WORKER_BOUNDS = WorkerBounds()
