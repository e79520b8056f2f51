"""Run the HTTP server of the page."""

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
    """Serve the page of an open bus until cancelled.

    After the cancellation, open streams get a `bye` frame and the server ends. No signal handlers are installed.

    Args:
        bus: the bus.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        token: token that allows everything; None makes a random one.
        reader_token: token that allows only reading; None means that no such token exists.
        allowed_hosts: more `Host` headers to accept, with ports, such as `bus.example.com:8420`.
        on_ready: called once with the page's URL, including the token, when the server accepts requests.
        bounds: limits and periods that rarely need another value.

    Raises:
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
        ValueError: both tokens are the same, or the reader's token is empty.
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
    """uvicorn without signal handlers. It ends the event streams when it closes."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing, self._ready = closing, anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

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


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # lets a restart reuse the port at once; on Windows, two programs could share it
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Listen before uvicorn does: of two servers that start at the same time, one then fails here.
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host, port) from error
        raise AddressRefused(host, port, error.strerror or str(error)) from error
    listener.setblocking(False)
    return listener


def _shown(host: str) -> str:
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # compared, not listened on
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
