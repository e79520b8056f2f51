"""What names an MCP server."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from mcp import Client, ClientSession, StdioServerParameters

__all__ = ("McpServer",)

McpServer = Union[str, "StdioServerParameters", "ClientSession", Callable[[], "Client"]]
"""An address (streamable HTTP), a program to start (stdio), a session that is already initialised, or what makes a
client of the SDK with your own headers, authentication or callbacks:
`lambda: Client(streamable_http_client(url, http_client=mine))`."""
