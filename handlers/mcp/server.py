"""The ways to specify an MCP server."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from mcp import Client, ClientSession, StdioServerParameters

__all__ = ("McpServer",)

McpServer = Union[str, "StdioServerParameters", "ClientSession", Callable[[], "Client"]]
"""The URL of a server (streamable HTTP), a program to start (stdio), an initialised session, or a function that returns
a client of the SDK. The function can set headers, authentication or callbacks, as in
`lambda: Client(streamable_http_client(url, http_client=mine))`."""
