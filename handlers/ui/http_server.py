"""An HTTP server without signal handlers, which ends when its task is cancelled."""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.types import ASGIApp

from lanebus.handlers.monitoring.worker_counts import ConnectionCounts
from lanebus.handlers.ui.bounds import DEFAULT_HTTP_BOUNDS, HttpBounds
from lanebus.handlers.ui.connections import ConnectionGate, HttpConnection, Unambiguous, protocol_of, sweep
from lanebus.handlers.ui.errors import AddressRefused, PortInUse
from lanebus.handlers.ui.proxies import parse_proxies

__all__ = ("listen", "serve_app", "shown_host")


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    *,
    closing: anyio.Event,
    grace: int,
    on_started: Callable[[], None],
    bounds: HttpBounds = DEFAULT_HTTP_BOUNDS,
    trusted_proxies: Iterable[str] = (),
    counts: ConnectionCounts | None = None,
) -> None:
    """Serve an application until cancelled.

    Logging is not configured: uvicorn's warnings go unchanged to the loggers `uvicorn.*`.

    Args:
        app: the application.
        listener: see `listen`. The caller closes it.
        closing: set before the server waits for running requests.
        grace: longest wait for running requests in the end, in seconds.
        on_started: called once when the server accepts requests.
        bounds: limits of the connections.
        trusted_proxies: addresses and networks whose number of connections has no limit of its own.
        counts: counts the connections; None means that nobody reads the counts.

    Raises:
        InvalidProxy: a trusted proxy is neither an address nor a network, or is every address.
    """
    gate = ConnectionGate(bounds, counts or ConnectionCounts(), parse_proxies(trusted_proxies))
    config = uvicorn.Config(
        Unambiguous(app),
        http=protocol_of(bounds, gate),
        h11_max_incomplete_event_size=bounds.head_bytes,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        # On by default, and believed from this machine: any local program could then choose its address in the log and
        # in the count of wrong tokens.
        proxy_headers=False,
        timeout_graceful_shutdown=grace,
    )
    server = _Server(config, closing, bounds, gate)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, server, listener)
        try:
            await server.wait_started()
            on_started()
            await anyio.sleep_forever()
        finally:
            server.close()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers. It ends the event streams when it closes, and connections without progress."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event, bounds: HttpBounds, gate: ConnectionGate) -> None:
        super().__init__(config)
        self._closing, self._ready, self._bounds, self._gate = closing, anyio.Event(), bounds, gate
        self._swept_at = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def on_tick(self, counter: int) -> bool:
        self._sweep(self._bounds.send_seconds)
        return await super().on_tick(counter)

    def _sweep(self, send_seconds: float) -> None:
        now = time.monotonic()
        self._gate.report(now)
        if now - self._swept_at >= min(1.0, send_seconds / 4, self._bounds.header_seconds / 4):
            self._swept_at = now
            sweep(self.server_state, send_seconds)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._sweep_to_the_end)
            await super().shutdown(sockets)
            tasks.cancel_scope.cancel()
        # uvicorn waits no longer, but these connections would stay open until their clients have read everything.
        for connection in [*self.server_state.connections]:
            if isinstance(connection, HttpConnection):
                connection.abort()
        await asyncio.sleep(0)  # the loop closes the aborted sockets in its next round

    async def _sweep_to_the_end(self) -> None:
        while True:
            self._sweep(self._bounds.last_send_seconds)
            await asyncio.sleep(self._bounds.last_send_seconds / 10)

    async def wait_started(self) -> None:
        await self._ready.wait()

    def close(self) -> None:
        """Make the server end. The event streams end first, because uvicorn waits for them."""
        self._closing.set()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _run(server: _Server, listener: socket.socket) -> None:
    # Shielded: a cancelled uvicorn leaks connections and tasks. `close()` ends the server instead.
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on each connection. Otherwise the body of an answer, which is
    # written after its head, waits some 40 ms for the client's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # lets a restart reuse the port at once; on Windows, two programs could share it
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Listen before uvicorn does: of two servers that start at the same time, one then fails here.
        listener.listen(128)
    except (TypeError, ValueError):  # a host that cannot be encoded, or that has a NUL
        listener.close()
        raise AddressRefused(host, port, "this is no host name") from None
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise AddressRefused(host, port, error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def shown_host(host: str) -> str:
    """Return a host for URLs: 127.0.0.1 if `host` means all addresses, else `host`, with brackets around IPv6."""
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # it is compared, not listened on
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
