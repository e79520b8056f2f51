"""What can be wrong with an MCP server before its tools are used."""

from collections.abc import Iterable

from lanebus.bus.errors import SetupError, Unavailable

__all__ = ("McpToolMissing", "McpUnavailable")


class McpToolMissing(SetupError):
    """The server has no tool of a name that was asked for.

    Fields: `names`, those that are missing; `server`, see `McpUnavailable`.
    """

    def __init__(self, server: str, names: Iterable[str]) -> None:
        self.server, self.names = server, tuple(sorted(names))
        missing = ", ".join(map(repr, self.names))
        super().__init__(f"the MCP server {server} has no tool {missing}: ask only for tools that it lists")


class McpUnavailable(Unavailable):
    """An MCP server could not be started or reached, or does not say which tools it has.

    Fields: `server`, its program or address, without what may be secret in it; `reason`, of the last attempt.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"the MCP server {server} is not available: {reason}; see that it runs")
        self.server, self.reason = server, reason
