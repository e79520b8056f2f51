"""Tools of MCP servers for agents. Using the tools needs the extra `mcp`; importing this module imports no SDK."""

from lanebus.handlers.mcp.bounds import McpBounds
from lanebus.handlers.mcp.definition import Definition, Hints
from lanebus.handlers.mcp.errors import McpToolMissing, McpUnavailable
from lanebus.handlers.mcp.server import McpServer
from lanebus.handlers.mcp.tool import McpTool
from lanebus.handlers.mcp.tools import McpTools, mcp_tools

__all__ = (
    "Definition",
    "Hints",
    "McpBounds",
    "McpServer",
    "McpTool",
    "McpToolMissing",
    "McpTools",
    "McpUnavailable",
    "mcp_tools",
)
