"""Bounds of a server for MCP clients, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_MCP_SERVER_BOUNDS", "McpServerBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerBounds:
    """Bounds of one server."""

    answer_bytes: int = 60_000
    """maximum number of bytes of an answer. Long texts of a larger one are cut, and then older messages are left out"""
    read_bytes: int = 16 * 1_048_576
    """maximum number of bytes of an answer before it is cut; a larger one is refused"""
    small_bytes: int = 65_536
    """Over HTTP, an answer that is larger before it is cut is read again once the memory for it is held."""
    calls: int = 8
    """number of requests over HTTP that are answered at the same time; further ones wait for their turn"""
    shortest_text: int = 200
    """number of characters to which a text may be cut"""
    page: int = 20
    """number of sessions, entries or turns of an answer, if the client asks for no other number"""
    complete_seconds: float = 5.0
    """longest time for which a list of sessions is asked for again until it is complete"""
    line_bytes: int = 4 * 1_048_576
    """maximum number of bytes of a client's message over stdin; a longer one is refused. Over HTTP,
    `UiBounds.body_bytes` counts too"""
    request_seconds: float = 60.0
    """longest time in which a request over HTTP is read and answered"""
    end_seconds: float = 5.0
    """longest wait at the end, until the last answer has left"""

    def __post_init__(self) -> None:
        check_bounds(self)


DEFAULT_MCP_SERVER_BOUNDS = McpServerBounds()
