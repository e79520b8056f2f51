"""The bounds and periods of an MCP server's tools, with their defaults. Times are in seconds."""

from dataclasses import dataclass

from lanebus.bus.errors import check_bounds

__all__ = ("DEFAULT_MCP_BOUNDS", "McpBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBounds:
    """Limits and periods of the connection to an MCP server. Times are in seconds."""

    attempts: int = 3
    """attempts to connect before a call fails"""
    first_pause_seconds: float = 0.25
    """pause before the second attempt; each further pause is four times as long as the previous one"""
    quiet_seconds: float = 5.0
    """time after the last failed attempt to connect during which calls fail at once, without a new attempt"""
    idle_seconds: float = 60.0
    """time without a call after which the connection is checked before the next call, because its loss may go
    unnoticed"""
    close_seconds: float = 5.0
    """time limit for closing a connection"""
    stream_pause_seconds: float = 5.0
    """pause before a lost stream of list changes is opened again; doubles each time, up to
    `longest_stream_pause_seconds`"""
    longest_stream_pause_seconds: float = 60.0
    """longest pause before a lost stream of list changes is opened again"""
    message_bytes: int = 4 * 1024 * 1024
    """maximum size of one message of a server, in bytes. A larger answer is not kept in memory, and its call fails.
    This does not apply to a client or session of your own"""
    result_characters: int = 200_000
    """maximum number of characters of all texts of a result; the rest is cut. A structured result, or private metadata,
    whose JSON is longer is left out"""
    description_characters: int = 8_000
    """maximum number of characters of a tool's description; the rest is cut"""
    schema_bytes: int = 100_000
    """maximum size of a tool's schema as JSON; a tool with a larger schema is left out"""
    tools: int = 1_000
    """maximum number of tools of a server; a longer list is refused"""
    pages: int = 1_000
    """maximum number of pages of a server's list of tools; a longer list counts as endless and is refused"""
    grace_seconds: float = 6.0
    """how much longer than `call_seconds` the agent waits for a call. If a server does not read, the SDK takes up to
    five seconds to send a cancellation"""
    progress_pause_seconds: float = 0.2
    """shortest time between two progress entries of a call in the log; a server may report progress a thousand times
    per second"""

    def __post_init__(self) -> None:
        check_bounds(self, zero=("quiet_seconds", "idle_seconds", "grace_seconds", "progress_pause_seconds"))


DEFAULT_MCP_BOUNDS = McpBounds()
