"""Bounds and periods of the monitor. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_MONITOR_BOUNDS", "MonitorBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorBounds:
    """Bounds of one monitor."""

    ping_pause_seconds: float = 1.0
    """pause between two checks of whether the bus's server answers, for `/readyz` of `lanebus serve`"""
    ping_seconds: float = 3.0
    """how long one check for `/readyz` of `lanebus serve` waits for the bus's server"""
    look_seconds: float = 5.0
    """pause between two looks of `lanebus serve` at whether the log was emptied or went back"""
    read_seconds: float = 3.0
    """longest time to read the server's state for one scrape; after that, the scrape has only this process's metrics"""
    cached_seconds: float = 1.0
    """scrapes within this time share one reading of the server, so that frequent scrapes do not load the server"""
    groups: int = 20
    """maximum number of consumer groups in one scrape, in the order of their names"""
    agents: int = 100
    """maximum number of agents in one scrape. Agents with the most sessions come first"""
    open_seconds: float = 0.3
    """time after which one scrape reads no further session to find runs and questions to people"""
    open_entries: int = 2_000
    """maximum number of entries of a session that are read at once for that"""
    open_heads: int = 64
    """maximum number of sessions whose heads are read at once for that"""
    open_sessions: int = 5_000
    """maximum number of sessions whose states are kept for that, so that only their new entries are read"""
    open_bytes: int = 8 * 1_048_576
    """maximum number of bytes of these states, as JSON"""
    connections: int = 64
    """maximum number of open connections; a further one gets 503. Probes and scrapes need few, and no token"""
    grace_seconds: int = 1
    """longest wait for running requests when the monitor ends"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("cached_seconds", "groups", "agents", "grace_seconds"))


DEFAULT_MONITOR_BOUNDS = MonitorBounds()
