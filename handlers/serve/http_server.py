"""An HTTP server without signal handlers, which ends when its task is cancelled.

Below it are its connections: limits on their number and times, and a way to close one at once.
"""

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeAlias, cast

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from lanebus.handlers.agent import ConnectionCounts, ConnectionsRefused, LogContext, write_event
from lanebus.handlers.serve.access.access import address_key
from lanebus.handlers.serve.bounds import DEFAULT_HTTP_BOUNDS, HttpBounds
from lanebus.handlers.serve.errors import AddressRefused, PortInUse
from lanebus.handlers.serve.guard import Network, parse_address, parse_proxies

# The connections of the HTTP server: limits on their number and times, and a way to close one at once.
#
# uvicorn has no setting for these limits. A connection that it closes stays open until the client has read all of its
# response, which a hostile client never does. So one sweep over all connections aborts those that make no progress.

_log = logging.getLogger(__name__)

_CONNECTION = "lanebus.connection"
_RESET = struct.pack("ii", 1, 0)  # without this, the kernel keeps unsent data until it has sent them
_Refusal: TypeAlias = tuple[int, bytes, bytes]
"""status, text, and further headers"""

_TOO_MANY: _Refusal = (503, b"too many connections\n", b"retry-after: 5\r\n")
_TOO_MANY_OF_ADDRESS: _Refusal = (429, b"too many connections from this address\n", b"retry-after: 5\r\n")
_TINY_PIECES: _Refusal = (400, b"the body comes in tiny pieces: send larger ones\n", b"")
_TOO_LARGE: _Refusal = (431, b"the path and the headers are too long\n", b"")


def abort_of(scope: Scope, default: Callable[[], None]) -> Callable[[], None]:
    """Return the function that closes a request's connection at once and drops unsent data.

    Args:
        scope: scope of the request.
        default: what to call instead if another server handles the request.
    """
    connection = connection_of(scope)
    return default if connection is None else connection.abort


def connection_of(scope: Scope) -> "HttpConnection | None":
    """Return the connection of a request; None if another server handles the request."""
    found: HttpConnection | None = scope.get(_CONNECTION)
    return found


def chunk_of(body: bytes) -> bytes:
    """Return a part of a body as a chunk of the transfer encoding "chunked"."""
    return b"%x\r\n%b\r\n" % (len(body), body)


class ConnectionGate:
    """Decides which connections a server takes: a number of them in all, and of each address. Logs refused ones."""

    def __init__(self, bounds: HttpBounds, counts: ConnectionCounts, trusted: Iterable[Network] = ()) -> None:
        """
        Args:
            bounds: the numbers.
            counts: updated with each connection.
            trusted: networks of proxies, whose connections are those of many clients.
        """
        self._bounds, self._counts, self._trusted = bounds, counts, tuple(trusted)
        self._reported, self._reported_at = 0, -math.inf

    def enter(self, client: tuple[str, int] | None) -> tuple[str, _Refusal | None]:
        """Count a new connection.

        Args:
            client: address and port; None for a unix socket, whose connections are those of this machine's programs.

        Returns:
            What `leave` gets, and why the connection is refused; None if it is taken.
        """
        counts, address = self._counts, None if client is None else parse_address(client[0])
        is_trusted = address is not None and any(address in network for network in self._trusted)
        key = "" if client is None or is_trusted else address_key(client[0])
        counts.open += 1
        if key:
            counts.by_address[key] += 1
        if counts.by_address[key] > self._bounds.address_connections:
            answer = _TOO_MANY_OF_ADDRESS
        elif counts.open > self._bounds.connections:
            answer = _TOO_MANY
        else:
            return key, None
        counts.refused += 1
        return key, answer

    def leave(self, key: str) -> None:
        """Count a connection no more."""
        counts = self._counts
        counts.open -= 1
        if key:
            counts.by_address[key] -= 1
            if not counts.by_address[key]:
                del counts.by_address[key]

    def report(self, now: float) -> None:
        """Log how many connections were refused, if some were since the last time, and that was long enough ago."""
        counts = self._counts
        if counts.refused == self._reported or now - self._reported_at < self._bounds.report_seconds:
            return
        refused, self._reported, self._reported_at = counts.refused - self._reported, counts.refused, now
        client, most = max(counts.by_address.items(), key=lambda each: each[1], default=("", 0))
        event = ConnectionsRefused(refused=refused, open=counts.open, client=client, client_open=most)
        write_event(_log, event, LogContext())


class _TinyPieces(h11.RemoteProtocolError):
    """A body comes in very many pieces that are tiny."""


class _Reader(h11.Connection):
    """Reads requests, and no body in tiny pieces: each costs as much as a large one, and may come without a token."""

    _pieces = _size = 0

    def __init__(self, bounds: HttpBounds) -> None:
        super().__init__(h11.SERVER, bounds.head_bytes)
        self._bounds = bounds

    def next_event(self) -> "h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]":
        """See `h11.Connection`."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces += 1
            self._size += len(event.data)
            if self._pieces > self._bounds.pieces and self._size < self._pieces * self._bounds.piece_bytes:
                raise _TinyPieces("the body comes in tiny pieces")
        elif isinstance(event, h11.Request):
            self._pieces = self._size = 0
        return event


class HttpConnection(H11Protocol, asyncio.BufferedProtocol):
    """A connection with limits. `sweep` enforces the limits on time."""

    # Slots: with more attributes in its dictionary, each connection would take a kilobyte more.
    __slots__ = (
        *("_address", "_bounds", "_gate", "_inner", "_received", "_unsent", "_unsent_since", "_waits_since"),
        "on_lost",
    )

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        bounds: HttpBounds,
        gate: ConnectionGate,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Reader(bounds)
        self._bounds, self._gate, self._address = bounds, gate, ""
        self._received: memoryview | None = None
        self._waits_since: float | None = None
        self._unsent, self._unsent_since = 0, 0.0
        self.on_lost: Callable[[], None] | None = None
        """called once when the connection is lost"""
        self._inner = cast("ASGIApp", self.app)
        self.app = self._answer

    def _answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope[_CONNECTION] = self  # not in a coroutine of its own: it would take memory as long as a stream is open
        return self._inner(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Set the limits of the socket. Refuse the connection if there are too many."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=self._bounds.buffered_bytes)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None and sock.family in {socket.AF_INET, socket.AF_INET6}:
            self._limit(sock)
        self._waits_since = time.monotonic()
        self._address, refusal = self._gate.enter(self.client)
        if refusal is not None:
            self._refuse(*refusal)

    def _limit(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # The kernel then closes a connection whose client is gone, or accepts nothing of what the kernel holds.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(self._bounds.send_seconds * 1_000))
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                # Otherwise the kernel buffers megabytes for each client that does not read.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self._bounds.kernel_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the event loop writes what it receives. By itself it would read 256 KiB of a client at once."""
        del sizehint
        self._received = memoryview(bytearray(self._bounds.received_bytes))
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Handle data of the client, which are in the buffer."""
        assert self._received is not None  # noqa: S101  # only for the type checker: `get_buffer` was called
        data, self._received = bytes(self._received[:nbytes]), None
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Handle data of the client."""
        at, piece = 0, self._bounds.head_piece_bytes
        # In pieces as long as a request begins: h11 bounds only a head that is not whole yet. asyncio reads 256 KiB at
        # once, which h11 would take as one head.
        while at < len(data) and self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            super().data_received(data[at : at + piece])
            at += piece
        if at < len(data) and not self.transport.is_closing():
            super().data_received(data[at:])
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete and len(cycle.body) >= self._bounds.received_bytes:
            self.flow.pause_reading()  # `receive` goes on. uvicorn alone would hold 64 KiB more
        if cycle is not None and not cycle.response_complete:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = time.monotonic()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is no HTTP, whose path and headers are too long, or whose body comes in tiny pieces."""
        error = sys.exc_info()[1]  # uvicorn calls this where it handles h11's error
        if isinstance(error, _TinyPieces):
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if cycle is not None and cycle.response_started:
                self.transport.close()  # a second answer would be taken for that of another request
            else:
                self._refuse(*_TINY_PIECES)
            return
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(*_TOO_LARGE)
            return
        super().send_400_response(msg)

    def _refuse(self, status: int, text: bytes, more: bytes) -> None:
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        rest = f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + more + rest.encode() + text)
        self.transport.close()

    def on_response_complete(self) -> None:
        """Prepare for the next request, whose header has a time limit from its first byte."""
        self._waits_since = None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        super().connection_lost(exc)
        self._gate.leave(self._address)
        if self.on_lost is not None:
            self.on_lost()

    @property
    def is_lost(self) -> bool:
        """Whether the connection was lost during the present request."""
        return self.cycle.disconnected or self.transport.is_closing()

    @property
    def can_chunk(self) -> bool:
        """Whether `write` works: a client of HTTP/1.0 gets no chunks."""
        return self.conn.their_http_version == b"1.1"

    def is_ready(self) -> bool:
        """Return whether `write` may be called now: a response without a length has begun, and the client accepts
        data."""
        cycle = self.cycle
        return (
            not self.flow.write_paused
            and cycle.response_started
            and not cycle.response_complete
            and not self.is_lost
            and self.can_chunk
        )

    def write(self, chunk: bytes) -> None:
        """Send a part of the response that `chunk_of` made, without the costs of an ASGI message.

        A subscriber takes 10 µs less, and all subscribers of a session share the bytes.
        """
        self.transport.write(chunk)

    def abort(self) -> None:
        """Close the connection at once, and drop unsent data, also that of the kernel."""
        sock: socket.socket | None = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def check(self, now: float, send_seconds: float) -> None:
        """Abort the connection if the client sends no header, or accepts no data.

        Args:
            now: present time by `time.monotonic`.
            send_seconds: longest time in which the client accepts no data.
        """
        if self._waits_since is not None and now - self._waits_since > self._bounds.header_seconds:
            self.abort()
            return
        unsent = self.transport.get_write_buffer_size()
        # A heartbeat makes the unsent data larger. Only data that becomes less shows that the client accepts some.
        if unsent == 0 or unsent < self._unsent or self._unsent == 0:
            self._unsent_since = now
        elif now - self._unsent_since > send_seconds:
            self.abort()
        self._unsent = unsent


def protocol_of(bounds: HttpBounds, gate: ConnectionGate) -> type[asyncio.Protocol]:
    """Return the protocol class for uvicorn, with these bounds, behind a gate."""

    class Bounded(HttpConnection):
        def __init__(
            self,
            config: uvicorn.Config,
            server_state: ServerState,
            app_state: dict[str, object],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(config, server_state, app_state, _loop, bounds=bounds, gate=gate)

    return Bounded


def sweep(state: ServerState, send_seconds: float) -> None:
    """Check all connections of a server."""
    now = time.monotonic()
    for each in [*state.connections]:
        if isinstance(each, HttpConnection):
            each.check(now, send_seconds)


class Unambiguous:
    """ASGI middleware that refuses a request with both `Content-Length` and `Transfer-Encoding`.

    A proxy may read such a request to another end than this server, and a client could hide a second request in it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            names = {name for name, _ in scope["headers"]}
            if {b"content-length", b"transfer-encoding"} <= names:
                headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
                await send({"type": "http.response.start", "status": 400, "headers": headers})
                text = b"a request has either Content-Length or Transfer-Encoding\n"
                await send({"type": "http.response.body", "body": text})
                return
        await self._app(scope, receive, send)


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
