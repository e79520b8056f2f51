"""The bounds, periods and limits of the page and its API, each with its default. Times are in seconds."""

from dataclasses import dataclass

from lanebus.handlers.projections.views import DEFAULT_VIEW_BOUNDS, ViewBounds

__all__ = ("DEFAULT_UI_BOUNDS", "UiBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class UiBounds:
    """The bounds of one application."""

    heartbeat: float = 15.0
    """between two signs of life on an event stream that has nothing to say"""
    send: float = 30.0
    """A client that takes nothing for so long is cut, and resumes by its last id. Until then it holds a frame, no
    queue."""
    retry: float = 2.0
    """how long a browser that lost its event stream waits before it connects again"""
    farewell: float = 1.0
    """how long the last frame of a stream may take"""
    grace: int = 3
    """how long a server that ends waits for its requests; streams end by themselves"""
    body_bytes: int = 1_000_000
    """most bytes of a request's body"""
    dropped_bytes: int = 16_000_000
    """A body that is too large and announces no more than this is read to its end: its client then gets the answer."""
    page_entries: int = 1_000
    """most entries in one answer of `entries`"""
    sessions: int = 500
    """most sessions in one answer, the newest"""
    turns: int = 200
    """most turns in one answer, the newest; a long session has thousands, and the page asks after each turn"""
    views: ViewBounds = DEFAULT_VIEW_BOUNDS
    """what is kept in memory of the sessions that the page shows, so that it reads only what is new"""


DEFAULT_UI_BOUNDS = UiBounds()
