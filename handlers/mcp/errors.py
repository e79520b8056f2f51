"""Errors of connecting to an MCP server."""

from collections.abc import Iterable

from lanebus.bus.errors import SetupError, Unavailable

__all__ = ("McpToolMissing", "McpUnavailable")


class McpToolMissing(SetupError):
    """`only` names a tool that the server does not list.

    Fields: `names`, the missing names; `server`, the server's program or address, without parts that may be secret.
    """

    def __init__(self, server: str, names: Iterable[str]) -> None:
        self.server, self.names = server, tuple(sorted(names))
        missing = ", ".join(map(repr, self.names))
        super().__init__(f"the MCP server {server} has no tool {missing}", "ask only for tools that it lists")


class McpUnavailable(Unavailable):
    """An MCP server could not be started or reached, or did not list its tools.

    Fields: `server`, the server's program or address, without parts that may be secret; `reason`, why the last attempt
    failed.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"the MCP server {server} is not available: {reason}", "check that it runs")
        self.server, self.reason = server, reason
