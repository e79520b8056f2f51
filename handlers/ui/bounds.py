"""Bounds, periods and limits of the page and its API, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.access.bounds import DEFAULT_ACCESS_BOUNDS, AccessBounds
from lanebus.handlers.projections.views import DEFAULT_VIEW_BOUNDS, ViewBounds

__all__ = ("DEFAULT_UI_BOUNDS", "UiBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class UiBounds:
    """Bounds of one application."""

    heartbeat_seconds: float = 15.0
    """pause between two heartbeats on an event stream"""
    send_seconds: float = 30.0
    """A client that accepts no data for this time is disconnected, and resumes after its last event id. Until then the
    server keeps one frame for the client, and no queue."""
    retry_seconds: float = 2.0
    """time that a browser waits before it reconnects a lost event stream"""
    last_frame_seconds: float = 1.0
    """longest time that sending the last frame of a stream may take"""
    grace_seconds: int = 3
    """longest wait for running requests when the server ends; event streams end at once"""
    body_bytes: int = 1_000_000
    """maximum number of bytes of a request's body"""
    dropped_bytes: int = 16_000_000
    """A body over `body_bytes` that announces at most this many bytes is read to its end, so that the client gets the
    response."""
    page_entries: int = 1_000
    """maximum number of entries in one response of `Api.entries`"""
    media_bytes: int = 16_777_216
    """maximum number of bytes of stored media in one response; larger media are refused"""
    sessions: int = 500
    """maximum number of sessions in one response, which has the most recently active sessions"""
    turns: int = 200
    """maximum number of turns in one response, which has the newest turns. A long session has thousands of turns, and
    the page requests them whenever a turn ends."""
    views: ViewBounds = DEFAULT_VIEW_BOUNDS
    """bounds of the projection states that are kept in memory, so that a request reads only new entries"""
    access: AccessBounds = DEFAULT_ACCESS_BOUNDS
    """bounds of the access rules: requests of a principal, wrong tokens, and how soon a revocation counts"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("grace_seconds", "dropped_bytes"))


DEFAULT_UI_BOUNDS = UiBounds()
