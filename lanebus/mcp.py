"""Tools of MCP servers for agents, and what MCP servers in several processes share.

Using these names needs the extra `mcp`; importing this module imports no SDK.
"""

from typing import TYPE_CHECKING

from lanebus.handlers.backends.extra import lazy_names
from lanebus.handlers.backends.mcp.bounds import McpStoreBounds
from lanebus.handlers.mcp.bounds import McpBounds
from lanebus.handlers.mcp.definition import Definition, Hints
from lanebus.handlers.mcp.errors import McpToolMissing, McpUnavailable
from lanebus.handlers.mcp.server import McpServer
from lanebus.handlers.mcp.tool import McpTool
from lanebus.handlers.mcp.tools import McpTools, mcp_tools

if TYPE_CHECKING:
    from lanebus.handlers.backends.mcp.event_store import McpEventStore
    from lanebus.handlers.backends.mcp.subscription_bus import McpSubscriptionBus

__all__ = (
    "Definition",
    "Hints",
    "McpBounds",
    "McpEventStore",
    "McpServer",
    "McpStoreBounds",
    "McpSubscriptionBus",
    "McpTool",
    "McpToolMissing",
    "McpTools",
    "McpUnavailable",
    "mcp_tools",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "McpEventStore": "lanebus.handlers.backends.mcp.event_store",
            "McpSubscriptionBus": "lanebus.handlers.backends.mcp.subscription_bus",
        },
        package="mcp",
        extra="mcp",
    )
