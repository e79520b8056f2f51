"""Bounds of the access rules, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_ACCESS_BOUNDS", "AccessBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessBounds:
    """Bounds of one server."""

    requests_per_second: float = 100.0
    """requests of one principal, averaged; a principal may have a limit of its own"""
    burst: int = 500
    """maximum number of requests of one principal at once, and of messages that one request appends"""
    append_bytes: int = 65_536
    """A message counts as a request for each of these bytes that it has as JSON, or a part of them."""
    streams: int = 300
    """maximum number of open event streams of one token; a further one is refused with 429"""
    followed: int = 1_000
    """Maximum number of sessions that the open event streams of one token follow together. A stream of `/api/events`
    counts once for each of its sessions. A stream that would follow more is refused with 429."""
    principals: int = 1_024
    """maximum number of principals whose requests are counted; the least recent is forgotten"""
    wrong_per_second: float = 0.2
    """unknown tokens that one address may send, averaged. The addresses of an IPv6 network /64 count as one"""
    wrong_burst: int = 20
    """maximum number of unknown tokens that one address may send at once"""
    addresses: int = 1_024
    """maximum number of addresses whose unknown tokens are counted; the least recent is forgotten"""
    accepted: int = 1_024
    """maximum number of accepted tokens that are remembered. These still work if their address is throttled."""
    refresh_seconds: float = 0.25
    """longest time until a changed file of tokens, keys or revocations is read, and until streams are checked again"""
    decision_seconds: float = 5.0
    """longest wait for the hooks `identify` and `authorize`; without an answer the request is refused"""
    token_bytes: int = 8_192
    """maximum size of a token"""
    file_bytes: int = 4_000_000
    """maximum size of a file of tokens, keys or revocations. A larger file counts as unreadable."""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_ACCESS_BOUNDS = AccessBounds()
