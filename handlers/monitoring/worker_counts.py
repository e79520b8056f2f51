"""Counters of a worker, or of the connections of a server, since its start, and the present state."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lanebus.bus.histogram import Histogram

__all__ = ("ConnectionCounts", "LabelledCounts", "WorkerCounts", "WorkerStatus")

_TURN_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)
_OTHER = "other"


class LabelledCounts:
    """Sums by labels, such as tokens by model. Only a limited number of combinations have a sum; all others share one,
    whose labels are "other"."""

    def __init__(self, *names: str, most: int = 200) -> None:
        """
        Args:
            names: the names of the labels.
            most: maximum number of combinations of labels. Later combinations are counted together, with each label
                "other".
        """
        self.names, self._most = names, most
        self._sums: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, amount: float = 1.0) -> None:
        """Add `amount` to the sum of these labels. Pass one label for each name in `names`."""
        if labels not in self._sums and len(self._sums) >= self._most:
            labels = (_OTHER,) * len(self.names)
        self._sums[labels] = self._sums.get(labels, 0.0) + amount

    @property
    def sums(self) -> Mapping[tuple[str, ...], float]:
        """The sum of each combination of labels."""
        return self._sums


@dataclass(slots=True)
class ConnectionCounts:
    """The connections to the page's server."""

    open: int = 0
    """connections that are open now"""
    refused: int = 0
    """connections that were refused, because too many were open"""
    by_address: Counter[str] = field(default_factory=Counter[str])
    """open connections of each address, without those of trusted proxies"""


@dataclass(slots=True)
class WorkerCounts:
    """Counters for monitoring. They only grow."""

    runs: int = 0
    """calls of an agent"""
    leases_lost: int = 0
    """leases that expired, or could not be renewed, while the session was running"""
    rescheduled: int = 0
    """sessions that were scheduled again after an error or a `TryAgain`"""
    retries: int = 0
    """failed attempts that are repeated, including attempts that failed because of the server"""
    given_up: int = 0
    """failures that were recorded in a session's log, with a dead letter"""
    dead_letters: int = 0
    """pieces of work that became dead letters"""
    handed_back: int = 0
    """unfinished sessions that were returned to the group"""
    loops: LabelledCounts = field(default_factory=lambda: LabelledCounts("agent", "outcome"))
    """ended loops by agent and stop reason"""
    turns: LabelledCounts = field(default_factory=lambda: LabelledCounts("agent", "model", "outcome"))
    """ended turns by agent, model and stop reason"""
    turn_seconds: Histogram = field(default_factory=lambda: Histogram(_TURN_SECONDS))
    """duration of the turns that began and ended in this worker"""
    tokens: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "kind"))
    """tokens by model, and by kind: input, output, cache_read or cache_write"""
    cost: LabelledCounts = field(default_factory=lambda: LabelledCounts("model"))
    """US dollars by model, as far as prices are known"""
    prompts: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "cache"))
    """model calls with a known usage, by model, and whether a part of the prompt came from the cache: hit or miss"""
    most_keys: int = 0
    """most publish keys that any session remembers, of those that the worker ran. It is counted now and then"""
    model_failures: LabelledCounts = field(default_factory=lambda: LabelledCounts("model", "status"))
    """failed model calls by model and HTTP status; the status is empty if there is none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """The present state of a worker."""

    name: str
    group: str
    concurrency: int
    """maximum number of sessions that run at a time"""
    sessions: int
    """sessions that have a task: running, or waiting to be tried again"""
    leases: int
    """leases that the worker holds and renews"""
    calls: Mapping[str, float]
    """for each agent that the worker serves, seconds since the oldest of its calls that still run began; 0 if none
    runs"""
    abandoned_threads: int
    """threads that still run sync tools whose calls were stopped"""
    is_running: bool
    """whether `run` has begun and not ended"""
    is_draining: bool
    """whether the worker stops after its present sessions"""
