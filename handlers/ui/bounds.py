"""Bounds, periods and limits of the page and its API, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.handlers.projections.views import DEFAULT_VIEW_BOUNDS, ViewBounds

__all__ = ("DEFAULT_UI_BOUNDS", "UiBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class UiBounds:
    """Bounds of one application."""

    heartbeat: float = 15.0
    """pause between two heartbeats on an event stream"""
    send: float = 30.0
    """A client that accepts no data for so long is disconnected, and resumes after its last event id. Until then the
    server holds one frame for it, no queue."""
    retry: float = 2.0
    """pause of a browser before it reconnects a lost event stream"""
    farewell: float = 1.0
    """longest time to send the last frame of a stream"""
    grace: int = 3
    """longest wait for running requests when the server ends; streams end by themselves"""
    body_bytes: int = 1_000_000
    """most bytes of a request's body"""
    dropped_bytes: int = 16_000_000
    """A body that is too large but announces at most this is read to its end, so that its client gets the response."""
    page_entries: int = 1_000
    """most entries in one answer of `entries`"""
    sessions: int = 500
    """most sessions in one answer: the most recently active"""
    turns: int = 200
    """most turns in one answer: the newest. A long session has thousands, and the page asks after each turn."""
    views: ViewBounds = DEFAULT_VIEW_BOUNDS
    """bounds of the states kept in memory, which let the page read only new entries"""


DEFAULT_UI_BOUNDS = UiBounds()
