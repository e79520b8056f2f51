"""The monitor of a process: `/healthz`, `/readyz` and `/metrics`, on an address of its own and without a token."""

import ipaddress
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial

import anyio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lanebus.handlers.agent.worker.background import in_background
from lanebus.handlers.monitoring.bounds import DEFAULT_MONITOR_BOUNDS, MonitorBounds
from lanebus.handlers.monitoring.log_events import MonitorBegun, write_event
from lanebus.handlers.monitoring.metrics import MetricsCollector, Observed
from lanebus.handlers.ui.auth import parse_host
from lanebus.handlers.ui.bounds import HttpBounds
from lanebus.handlers.ui.http_server import listen, serve_app, shown_host
from lanebus.handlers.ui.replies import answer, refuse

__all__ = ("HostRule", "create_monitor", "monitored")

_log = logging.getLogger(__name__)


class HostRule:
    """ASGI middleware that refuses requests with a foreign `Host` header, to prevent DNS rebinding.

    In this attack, an attacker's site lets its own host name resolve to this machine, so that its pages can read the
    monitor. Therefore only IP addresses, `localhost` and the names in `allowed` are accepted as hosts, with any port.
    A request without `Host` is accepted too.
    """

    def __init__(self, app: ASGIApp, *, allowed: Iterable[str]) -> None:
        """
        Args:
            allowed: more hosts to accept, as `parse_host` returns them. Their ports are ignored.
        """
        self._app, self._allowed = app, frozenset(map(_name_of, ("localhost", *allowed)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http":
            headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
            hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
            if len(hosts) > 1 or not all(map(self._is_known, hosts)):
                text = "the monitor does not accept this host name: allow it with --monitor-allow-host"
                await refuse(403, "host_refused", text)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        name = _name_of(host)
        if name in self._allowed:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _name_of(host: str) -> str:
    """Return the name or the address of a `Host` header, without the port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].lower()


def create_monitor(
    observe: Callable[[], Awaitable[Observed]], not_ready: Callable[[], str | None], allowed: Iterable[str] = ()
) -> ASGIApp:
    """Create the application that serves `/healthz`, `/readyz` and `/metrics`.

    Args:
        observe: returns what a scrape of `/metrics` shows.
        not_ready: returns why the process is not ready; None if it is ready.
        allowed: see `HostRule`.
    """

    async def healthz(request: Request) -> Response:
        del request
        return answer({"status": "alive"})  # the event loop answers

    async def readyz(request: Request) -> Response:
        del request
        reason = not_ready()
        return answer({"status": "ready"}) if reason is None else answer({"status": "not ready", "reason": reason}, 503)

    async def metrics(request: Request) -> Response:
        del request
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MetricsCollector(await observe()))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
    return HostRule(Starlette(routes=routes), allowed=allowed)


@asynccontextmanager
async def monitored(
    host: str,
    port: int,
    *,
    observe: Callable[[], Awaitable[Observed]],
    not_ready: Callable[[], str | None],
    allowed: Iterable[str] = (),
    bounds: MonitorBounds = DEFAULT_MONITOR_BOUNDS,
) -> AsyncGenerator[None, None]:
    """Serve the monitor during the block. The event `monitor.begun` has its address.

    Args:
        host: address to listen on; also accepted as a host name.
        port: port to listen on; 0 takes a free port.
        observe, not_ready: see `create_monitor`.
        allowed: more hosts to accept, as clients name them in the header `Host`. Their ports are ignored.
        bounds: periods and limits.

    Raises:
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
        InvalidHost: an allowed host is no host.
    """
    hosts = [shown_host(host), *map(parse_host, allowed)]
    with listen(host, port) as listener:
        address = f"http://{shown_host(host)}:{listener.getsockname()[1]}"
        app = create_monitor(observe, not_ready, hosts)

        def on_started() -> None:
            write_event(_log, MonitorBegun(address=address))

        serve = partial(
            serve_app,
            app,
            listener,
            closing=anyio.Event(),
            grace=bounds.grace_seconds,
            on_started=on_started,
            bounds=HttpBounds(connections=bounds.connections),
        )
        async with in_background(serve):
            yield
