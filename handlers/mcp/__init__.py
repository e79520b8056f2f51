"""Tools of MCP servers for an agent, through the client of the MCP Python SDK: the extra `mcp`.

    async with mcp_tools("https://example.com/mcp", prefix="docs_") as tools:
        agent = AgentLoop(model, tools)

Importing this imports no SDK and connects to nothing.
"""

from handlers.mcp.bounds import McpBounds
from handlers.mcp.definition import Definition, Hints
from handlers.mcp.errors import McpToolMissing, McpUnavailable
from handlers.mcp.tool import McpTool
from handlers.mcp.tools import McpServer, McpTools, mcp_tools

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
