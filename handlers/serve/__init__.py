"""Serve the web page of a bus and the page's HTTP API. Needs the extra `serve`.

Start with `server.py`. `guard.py` checks each request and names its principal, and `gate.py` asks the rules of
`access/` for each route and stream. `api/` holds the endpoints. `transfer.py` moves their bodies within the memory of
`budget.py`; `stream.py` makes event streams. `mcp/` offers the same endpoints to MCP clients.

`monitor.py` is another application: the health and the metrics of a process. It needs the extra `metrics`. `watcher.py`
looks at a bus for `lanebus top`. `access/`, `errors.py` and `watcher.py` need no extra.
"""

from typing import TYPE_CHECKING

from lanebus.bus.faces import lazy_names

if TYPE_CHECKING:
    from lanebus.handlers.serve.access.access import Identify, load_authorize, load_identify
    from lanebus.handlers.serve.access.credentials import (
        ACTIONS,
        ALL,
        BOTH_LANES,
        READ,
        Authorize,
        Principal,
        TokenFiles,
        WatchedFile,
        add_revocations,
        check_mode,
        new_key,
        sign_token,
    )
    from lanebus.handlers.serve.errors import PortInUse, ServeMissing, TokenFileUnreadable
    from lanebus.handlers.serve.json_text import compact, spliced
    from lanebus.handlers.serve.mcp.transport import McpHosted, serve_client
    from lanebus.handlers.serve.monitor import Observed, ObservedWorker, monitored
    from lanebus.handlers.serve.readings import DEFAULT_MONITOR_BOUNDS, ServerReader
    from lanebus.handlers.serve.server import HostedApp, serve
    from lanebus.handlers.serve.uploads import check_folder
    from lanebus.handlers.serve.watcher import Overview, Pace, SessionStatus, Watcher, overview_json

__all__ = (
    "ACTIONS",
    "ALL",
    "BOTH_LANES",
    "DEFAULT_MONITOR_BOUNDS",
    "READ",
    "Authorize",
    "HostedApp",
    "Identify",
    "McpHosted",
    "Observed",
    "ObservedWorker",
    "Overview",
    "Pace",
    "PortInUse",
    "Principal",
    "ServeMissing",
    "ServerReader",
    "SessionStatus",
    "TokenFileUnreadable",
    "TokenFiles",
    "WatchedFile",
    "Watcher",
    "add_revocations",
    "check_folder",
    "check_mode",
    "compact",
    "load_authorize",
    "load_identify",
    "monitored",
    "new_key",
    "overview_json",
    "serve",
    "serve_client",
    "sign_token",
    "spliced",
)

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "lanebus.handlers.serve.access.access": (
                "Identify",
                "load_authorize",
                "load_identify",
            ),
            "lanebus.handlers.serve.access.credentials": (
                "ACTIONS",
                "ALL",
                "Authorize",
                "BOTH_LANES",
                "Principal",
                "READ",
                "TokenFiles",
                "WatchedFile",
                "add_revocations",
                "check_mode",
                "new_key",
                "sign_token",
            ),
            "lanebus.handlers.serve.errors": (
                "PortInUse",
                "ServeMissing",
                "TokenFileUnreadable",
            ),
            "lanebus.handlers.serve.json_text": (
                "compact",
                "spliced",
            ),
            "lanebus.handlers.serve.mcp.transport": (
                "McpHosted",
                "serve_client",
            ),
            "lanebus.handlers.serve.monitor": (
                "Observed",
                "ObservedWorker",
                "monitored",
            ),
            "lanebus.handlers.serve.readings": (
                "DEFAULT_MONITOR_BOUNDS",
                "ServerReader",
            ),
            "lanebus.handlers.serve.server": (
                "HostedApp",
                "serve",
            ),
            "lanebus.handlers.serve.uploads": ("check_folder",),
            "lanebus.handlers.serve.watcher": (
                "Overview",
                "Pace",
                "SessionStatus",
                "Watcher",
                "overview_json",
            ),
        },
    )
