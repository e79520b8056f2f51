"""Serving: the socket, the server's life, and its end."""

import errno
import os
import secrets
import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

import anyio
import uvicorn

from lanebus.bus.bus import Bus
from lanebus.handlers.ui.app import create_app
from lanebus.handlers.ui.auth import local_hosts
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.errors import AddressRefused, PortInUse

__all__ = ("serve",)


async def serve(
    bus: Bus,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    token: str | None = None,
    reader_token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    on_ready: Callable[[str], None] | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> None:
    """Serve the page of an open bus until cancelled; then open streams get a farewell and it ends at once.

    Args:
        port: 0 takes any free one.
        token: the start token; None makes one up.
        reader_token: another one, for who may look and not speak; None is nobody.
        allowed_hosts: further `Host` headers to answer to, with their ports, as `bus.example.com:8420`.
        on_ready: called once with the address to open, token included, when requests are taken.
        bounds: limits and periods that seldom need another value.

    Raises:
        PortInUse: another program listens there.
        AddressRefused: the system does not let us listen there.

    It installs no signal handlers: who runs it decides what ends it, by cancelling it.
    """
    token = token or secrets.token_urlsafe(24)
    with _listen(host, port) as listener:
        port = int(listener.getsockname()[1])
        closing = anyio.Event()
        app = create_app(
            bus,
            token=token,
            reader_token=reader_token,
            allowed_hosts={*local_hosts(port), *allowed_hosts},
            closing=closing,
            bounds=bounds,
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=bounds.grace,
        )
        server = _Server(config, closing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run, server, listener)
            try:
                await server.wait_started()
                if on_ready is not None:
                    on_ready(f"http://{_shown(host)}:{port}/?token={token}")
                await anyio.sleep_forever()
            finally:
                server.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, that tells the streams when it closes."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing, self._ready = closing, anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def wait_started(self) -> None:
        await self._ready.wait()

    def close(self) -> None:
        """End soon: the streams are told before uvicorn starts to wait for them."""
        self._closing.set()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _run(server: _Server, listener: socket.socket) -> None:
    # Shielded: cancelled in the middle, uvicorn would leave connections and tasks behind. `close()` ends it.
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # so that a restart need not wait; elsewhere it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Listening starts here, so that of two servers started at once one is told.
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise AddressRefused(host, port, error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def _shown(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # it is compared, not listened on
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
