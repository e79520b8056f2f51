"""Bounds of the agents that the SDK's runner runs, with their defaults."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds

__all__ = ("DEFAULT_RUNNER_BOUNDS", "RunnerBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerBounds:
    """Sizes of what a run stores."""

    store: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """the size from which the state of a run that waits for a person goes to the media store"""
    answer_bytes: int = 900_000
    """maximum size of an answer's message; of a larger answer, the start of its text is stored"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_RUNNER_BOUNDS = RunnerBounds()
