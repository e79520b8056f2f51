"""Bounds of what is stored for MCP servers, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds
from lanebus.handlers.backends.bounds import DEFAULT_BACKEND_BOUNDS, BackendBounds

__all__ = ("DEFAULT_MCP_STORE_BOUNDS", "McpStoreBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpStoreBounds:
    """Bounds of one event store, or of one subscription bus."""

    kept_entries: int = 10_000
    """number of the newest entries that are kept. Older ones are trimmed whenever as many new ones were appended, so up
    to twice as many may be there"""
    deliver_seconds: float = 5.0
    """longest time that `publish` waits for the listeners of its own process, after the event is stored"""
    resume_seconds: float = 300.0
    """longest time that a resumed stream is open; then its client connects again and misses nothing"""
    first_pause_seconds: float = 0.1
    """pause before the log is followed again after the server was lost; each further pause is twice as long"""
    longest_pause_seconds: float = 5.0
    """longest pause before the log is followed again"""
    values: BackendBounds = DEFAULT_BACKEND_BOUNDS
    """size from which a stored message goes to the media store"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_MCP_STORE_BOUNDS = McpStoreBounds()
