"""Bounds of connections to servers. A module of its own, as importing the client library takes long."""

from dataclasses import dataclass

__all__ = ("ConnectionBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """Timeouts, pauses and counts of connections to servers. Times are in seconds."""

    connect_seconds: float = 5.0
    """most time to connect, log in included"""
    answer_seconds: float = 10.0
    """time without a byte in either direction, while an answer is due, after which a connection counts as dead. A
    blocking read adds its own time. TCP connections also get it as TCP_USER_TIMEOUT"""
    patience_seconds: float = 10.0
    """how long a short call is retried while servers start or change roles"""
    retry_seconds: float = 0.01
    """first pause between two such attempts; each one doubles"""
    retry_most_seconds: float = 0.5
    """longest pause between two such attempts"""
    lookup_seconds: float = 2.0
    """most time for one Sentinel or cluster server to answer a look-up, before the next one is asked"""
    lookup_pause_seconds: float = 0.05
    """least time between two reads of a cluster's slot map, for all connections together"""
    loading_pause_seconds: float = 0.1
    """pause between two checks, when a bus is opened, whether a server has loaded its files"""
    pool_connections: int = 8
    """most connections for short calls to one server; further callers wait"""
    media_connections: int = 4
    """the same for media that are stored on the server of the bus"""
    scan_count: int = 1_000
    """COUNT of each SCAN: keys that one step examines"""
    groups_in_flight: int = 2
    """most groups of calls in flight: while the server works on one, the process handles the replies to the other"""
    group_commands: int = 128
    """most commands in a group; the commands of one call are not split"""
