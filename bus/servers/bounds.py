"""How long connections to servers are waited for. By itself, as the client takes long to import."""

from dataclasses import dataclass

__all__ = ("ConnectionBounds",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    """How long connections to servers are waited for."""

    connect_seconds: float = 5.0
    """until a connection is made and the server has greeted"""
    answer_seconds: float = 10.0
    """without a byte in either direction while an answer is due; a blocking read may take its own time longer. The
    connection then counts as dead. On TCP the kernel gives up unacknowledged bytes after as long"""
    patience_seconds: float = 10.0
    """how long a short call is repeated while servers start or change roles"""
    retry_seconds: float = 0.01
    """the first pause between two such attempts; it doubles"""
    retry_most_seconds: float = 0.5
    """the longest pause between two such attempts"""
    lookup_seconds: float = 2.0
    """for one Sentinel, or one server of a cluster, to say where a key is, before the next one is asked"""
    lookup_pause_seconds: float = 0.05
    """the shortest time between two looks at a cluster's map, however many connections want to know"""
    loading_pause_seconds: float = 0.1
    """how often opening a bus looks whether a server has read its file"""
    pool_connections: int = 8
    """connections for short calls to one server; callers beyond them wait"""
    media_connections: int = 4
    """the same, for media in the bus's own server"""
    scan_count: int = 1_000
    """keys that one step of a scan looks at"""
    groups_in_flight: int = 2
    """writes of grouped calls that are not answered yet: while the server works on one, the answers to the other are
    taken in"""
    group_commands: int = 128
    """most commands of grouped calls in one write; a call's own stay together"""
