"""The bounds and periods of the tools of an MCP server, each with its default. Times are in seconds."""

from dataclasses import dataclass

__all__ = ("DEFAULT_MCP_BOUNDS", "McpBounds")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpBounds:
    """How long a server is tried, and how often it is asked."""

    attempts: int = 3
    """to connect, before a call is told that there is no server"""
    pause: float = 0.25
    """before the second attempt; four times as long before each further one"""
    quiet: float = 5.0
    """After all attempts failed, calls are told so without trying again for so long."""
    idle: float = 60.0
    """A connection that was not used for so long is tried before a call is risked on it: nothing tells that it was
    lost."""
    close: float = 5.0
    """how long a server may take to be told goodbye"""
    listen_pause: float = 5.0
    """before a lost stream of changes is asked for again; twice as long each time, up to `listen_most`"""
    listen_most: float = 60.0
    pages: int = 1_000
    """of a list of tools; a server that has more never comes to an end"""
    grace: float = 6.0
    """how much longer than `call_seconds` who runs a call waits for it: the SDK takes up to five seconds to tell a
    server that does not read that its call is cancelled"""
    progress_pause: float = 0.2
    """between two entries of progress: each is one in the log, and a server may report a thousand times a second"""


DEFAULT_MCP_BOUNDS = McpBounds()
