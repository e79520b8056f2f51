"""Connect to servers: connections, pools of connections, and routing to the server that holds a key.

The client library's own retries are switched off, because a command may be sent again only if it may run twice. Every
wait is bounded. Start with `topology.py` for the URLs, and with `connection.py` for one connection.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.bus.servers.calls import Argument, Backoff, Reply, answered
    from lanebus.bus.servers.connection import Connection, Pool
    from lanebus.bus.servers.endpoint import Endpoint
    from lanebus.bus.servers.health import (
        DurabilityWarning,
        ServerVersion,
        acl_users,
        check_durability,
        command_name,
        known_holes,
        read_examples,
        read_info,
        server_examples,
        transport_risk,
        write_examples,
    )
    from lanebus.bus.servers.topology import OneServer, Topology, topology_at

__all__ = (
    "Argument",
    "Backoff",
    "Connection",
    "DurabilityWarning",
    "Endpoint",
    "OneServer",
    "Pool",
    "Reply",
    "ServerVersion",
    "Topology",
    "acl_users",
    "answered",
    "check_durability",
    "command_name",
    "known_holes",
    "read_examples",
    "read_info",
    "server_examples",
    "topology_at",
    "transport_risk",
    "write_examples",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.bus.servers.calls": (
                "Argument",
                "Backoff",
                "Reply",
                "answered",
            ),
            "lanebus.bus.servers.connection": (
                "Connection",
                "Pool",
            ),
            "lanebus.bus.servers.endpoint": ("Endpoint",),
            "lanebus.bus.servers.health": (
                "DurabilityWarning",
                "ServerVersion",
                "acl_users",
                "check_durability",
                "command_name",
                "known_holes",
                "read_examples",
                "read_info",
                "server_examples",
                "transport_risk",
                "write_examples",
            ),
            "lanebus.bus.servers.topology": (
                "OneServer",
                "Topology",
                "topology_at",
            ),
        },
    )
