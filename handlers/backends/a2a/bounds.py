"""Bounds of the tasks of A2A servers, with their defaults."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds

__all__ = ("DEFAULT_A2A_BOUNDS", "A2aBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class A2aBounds:
    """Bounds of one `LogTaskStore`."""

    states: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """bounds of the tasks in memory, and of what is stored"""
    shown_characters: int = 150_000
    """longer texts are cut in the LLM lane and in notes of artifacts; the task itself keeps them whole"""
    listed_tasks: int = 100_000
    """maximum number of tasks whose state and time a store remembers for `list`; others are read again"""
    reads_at_once: int = 32
    """maximum number of tasks that `list` reads at the same time"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_A2A_BOUNDS = A2aBounds()
