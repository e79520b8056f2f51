"""Run the HTTP server of the page."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from lanebus.bus.bus import Bus
from lanebus.handlers.access.access import Identify
from lanebus.handlers.access.credentials import Credentials, TokenFiles
from lanebus.handlers.access.request import Authorize
from lanebus.handlers.monitoring.worker_counts import ConnectionCounts
from lanebus.handlers.projections.projection import Projection
from lanebus.handlers.ui.app import create_app
from lanebus.handlers.ui.auth import local_hosts
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.hosted import HostedApp
from lanebus.handlers.ui.http_server import listen, serve_app, shown_host
from lanebus.handlers.ui.uploads.uploads import Uploads

__all__ = ("serve",)


async def serve(
    bus: Bus,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    token: str | None = None,
    reader_token: str | None = None,
    token_files: TokenFiles | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    trusted_proxies: Iterable[str] = (),
    base_path: str = "",
    on_ready: Callable[[str], None] | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
    projections: Iterable[Projection[object]] = (),
    uploads: Path | None = None,
    hosted: Iterable[HostedApp] = (),
    connections: ConnectionCounts | None = None,
    allowed_media_urls: Iterable[str] = (),
) -> None:
    """Serve the page of an open bus until cancelled.

    After the cancellation, open streams get a `bye` frame and the server ends. No signal handlers are installed.

    Args:
        bus: the bus.
        host: address to listen on.
        port: port to listen on; 0 takes a free port.
        token: token that allows everything; None makes a random token, unless a file holds one or `identify` names
            users.
        reader_token, token_files, identify, authorize: as for `create_app`.
        allowed_hosts: more `Host` headers to accept, with ports, such as `bus.example.com:8420`.
        allowed_origins, trusted_proxies, base_path: as for `create_app`.
        on_ready: called once with the page's URL when the server accepts requests. The URL contains `token`, or the
            random one, and never a token of a file.
        bounds: limits and periods that rarely need another value.
        projections: projections to serve besides lanebus's own.
        uploads: directory where uploaded files are kept until a message names them. It belongs to one bus; processes of
            one machine that serve this bus may share it. None means a temporary directory, which ends with the server.
        hosted: other applications to run and serve under their paths.
        connections: counts the connections, for metrics; None means that nobody reads the counts.
        allowed_media_urls: as for `create_app`.

    Raises:
        PortInUse: another program listens on this port.
        AddressRefused: the operating system refused to listen on this address.
        InvalidHost: an allowed host is no host.
        InvalidOrigin: an allowed origin is no origin.
        InvalidProxy: a trusted proxy is neither an address nor a network, or is every address.
        InvalidBasePath: the base path is no path, or the server needs it itself.
        InvalidMediaUrl: an allowed address of media is no URL of a host.
        ValueError: both tokens are the same, or the reader's token is empty.
        TokenFileUnreadable: a file of tokens or keys cannot be read, or is empty.
        FileExposed: every user may write one of these files.
        TokensMissing: a file of keys is given, and the extra `tokens` is not installed.
        WeakKey: a key is too short.
    """
    if not token and identify is None and (token_files is None or token_files.token is None):
        token = secrets.token_urlsafe(24)
    token = token or None
    credentials = Credentials(token, reader_token, token_files, bounds.access)
    credentials.log_weaknesses()
    with listen(host, port) as listener:
        port = int(listener.getsockname()[1])
        closing = anyio.Event()
        hosted, trusted_proxies = [*hosted], [*trusted_proxies]
        received = Uploads(bus, uploads, bounds.uploads, wait_seconds=bounds.wait_seconds)
        app = create_app(
            bus,
            token=token,
            reader_token=reader_token,
            token_files=token_files,
            identify=identify,
            authorize=authorize,
            allowed_hosts={*local_hosts(port), *allowed_hosts},
            allowed_origins=allowed_origins,
            trusted_proxies=trusted_proxies,
            base_path=base_path,
            closing=closing,
            bounds=bounds,
            projections=projections,
            uploads=received,
            hosted=hosted,
            allowed_media_urls=allowed_media_urls,
        )

        def on_started() -> None:
            if on_ready is not None:
                on_ready(
                    f"http://{shown_host(host)}:{port}{base_path.rstrip('/')}/" + (f"#token={token}" if token else "")
                )

        async with AsyncExitStack() as running:
            for each in hosted:
                await running.enter_async_context(each.run(app))
            tasks = await running.enter_async_context(anyio.create_task_group())
            tasks.start_soon(received.sweep_forever)
            tasks.start_soon(app.state.sweep_forever)
            await serve_app(
                app,
                listener,
                closing=closing,
                grace=bounds.grace_seconds,
                on_started=on_started,
                bounds=bounds.http,
                trusted_proxies=trusted_proxies,
                counts=connections,
            )
            tasks.cancel_scope.cancel()
