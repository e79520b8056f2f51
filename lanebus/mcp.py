"""Tools of MCP servers for agents, and what MCP servers in several processes share.

Using these names needs the extra `mcp`; importing this module imports no SDK.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names
from lanebus.handlers.integrations.bounds import McpBounds, McpStoreBounds
from lanebus.handlers.integrations.mcp.definition import Definition, Hints, McpServer, McpToolMissing, McpUnavailable
from lanebus.handlers.integrations.mcp.tools import McpTool, McpTools, mcp_tools

if TYPE_CHECKING:
    from lanebus.handlers.integrations.mcp.replicas import McpEventStore, McpSubscriptionBus

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
            "lanebus.handlers.integrations.mcp.replicas": ("McpEventStore", "McpSubscriptionBus"),
        },
        package="mcp",
        extra="mcp",
    )


def __dir__() -> list[str]:
    return [*__all__]
