"""Bounds of connections to servers. They can be imported without the client library, whose import takes long."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("ConnectionBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """Timeouts, pauses and counts of connections to servers. Times are in seconds."""

    connect_seconds: float = 5.0
    """longest time to connect and log in"""
    answer_seconds: float = 10.0
    """a connection is dead if an answer is due and no byte moves in either direction for this time. A blocking read
    adds its own time. TCP connections also get this value as TCP_USER_TIMEOUT"""
    retrying_seconds: float = 10.0
    """how long a short call is retried while servers start or change roles"""
    first_pause_seconds: float = 0.01
    """first pause between two attempts of a short call. Each further pause is twice as long"""
    longest_pause_seconds: float = 0.5
    """longest pause between two attempts of a short call"""
    lookup_seconds: float = 2.0
    """longest time that a Sentinel or cluster server may take to answer a look-up, before another server is asked"""
    watch_seconds: float = 1.0
    """time between two questions to each Sentinel whether the primary has changed"""
    lookup_pause_seconds: float = 0.05
    """shortest time between two reads of a cluster's slot map, by all connections together"""
    loading_pause_seconds: float = 0.1
    """when a bus is opened: pause between two checks whether a server has loaded its files"""
    pool_connections: int = 8
    """maximum number of connections for short calls to one server; further callers wait"""
    media_connections: int = 4
    """maximum number of connections for media to each server of the bus; further callers wait"""
    scan_count: int = 1_000
    """COUNT of each SCAN command: about how many keys one step examines"""
    groups_in_flight: int = 2
    """maximum number of groups of calls in flight. While the server works on one group, the process handles replies to
    another"""
    group_commands: int = 128
    """approximate maximum number of commands in a group. The commands of one call are always in the same group"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.connection")
