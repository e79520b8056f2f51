"""Run the server of the page, and build its application: the routes, and the guard that checks requests before them."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lanebus.bus import Bus
from lanebus.bus.errors import BusError
from lanebus.handlers.agent import ConnectionCounts
from lanebus.handlers.projections import Projection
from lanebus.handlers.protocols import MediaAddresses
from lanebus.handlers.serve.access.access import Access, Identify
from lanebus.handlers.serve.access.credentials import Authorize, Credentials, TokenFiles
from lanebus.handlers.serve.api.endpoint import ApiContext, methods_of, routes
from lanebus.handlers.serve.api.openapi import endpoints
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.guard import (
    BasePath,
    CrossOrigin,
    Guard,
    TrustedProxies,
    local_hosts,
    parse_base_path,
    parse_host,
    parse_proxies,
)
from lanebus.handlers.serve.http_server import listen, serve_app, shown_host
from lanebus.handlers.serve.page import load_page
from lanebus.handlers.serve.replies import answer_error
from lanebus.handlers.serve.uploads import Uploads


class HostedApp(Protocol):
    """An application under a path of its own. The guard has identified the principal of each request."""

    @property
    def path(self) -> str:
        """The path, such as `/mcp`."""
        ...

    def run(self, page: Starlette) -> AbstractAsyncContextManager[None]:
        """Return a block in which requests are accepted.

        Args:
            page: the application of the page, whose API it may call.
        """
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a POST request."""
        ...


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


def create_app(
    bus: Bus,
    *,
    token: str | None = None,
    reader_token: str | None = None,
    token_files: TokenFiles | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    allowed_hosts: Iterable[str],
    allowed_origins: Iterable[str] = (),
    trusted_proxies: Iterable[str] = (),
    base_path: str = "",
    closing: anyio.Event | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
    projections: Iterable[Projection[object]] = (),
    uploads: Uploads | None = None,
    hosted: Iterable[HostedApp] = (),
    allowed_media_urls: Iterable[str] = (),
) -> Starlette:
    """Create the application that serves the page and its API from an open bus.

    Args:
        bus: the bus.
        token: token that allows everything; not empty. Clients send it as a bearer token. None means that only
            `token_files` and `identify` name principals.
        reader_token: token that allows only reading; None means that no such token exists.
        token_files: files of tokens, of keys that verify signed tokens, and of revocations.
        identify: names the principal of a request by other means, such as a header of your proxy.
        authorize: decides each request; None means by the rights of the principal.
        allowed_hosts: accepted `Host` headers, with ports; see `local_hosts`.
        allowed_origins: origins whose pages may use the server, such as `https://app.example.com`. They get no rights
            but may send a token.
        trusted_proxies: addresses and networks of proxies. Their `X-Forwarded-For`, `X-Forwarded-Proto` and
            `X-Forwarded-Host` are believed, and those of others are ignored.
        base_path: path below which all is served, such as `/lanebus`, whether a proxy removes it or not; "" means none.
        closing: event to set when the server closes: open event streams then send a `bye` frame and end.
        bounds: limits and periods that rarely need another value.
        projections: projections to serve besides lanebus's own.
        uploads: receives the files that clients upload. None means in a temporary directory.
        hosted: other applications to serve under their paths, by POST. The caller runs them.
        allowed_media_urls: addresses of media that clients may name in messages, such as
            `https://cdn.example.com/public`: a scheme, a host, and perhaps a port and the first segments of a path. The
            provider fetches them, perhaps with the rights of the worker. Other addresses are refused.

    Raises:
        InvalidHost: an allowed host is no host.
        InvalidOrigin: an allowed origin is no origin.
        InvalidProxy: a trusted proxy is neither an address nor a network, or is every address.
        InvalidBasePath: the base path is no path, or the server needs it itself.
        InvalidMediaUrl: an allowed address of media is no URL of a host.
        ValueError: a token is empty, or both tokens are the same.
        TokenFileUnreadable: a file of tokens or keys cannot be read, or is empty.
        TokensMissing: a file of keys is given, and the extra `tokens` is not installed.
        WeakKey: a key is too short.
    """
    served = endpoints()
    others = [Route(each.path, each, methods=["POST"]) for each in hosted]
    base = parse_base_path(base_path, [*(each.path for each in served), *(each.path for each in others)])
    proxies = parse_proxies(trusted_proxies)
    page = load_page(base)
    credentials = Credentials(token, reader_token, token_files, bounds.access)
    access = Access(credentials, identify=identify, authorize=authorize, bounds=bounds.access)
    addresses = MediaAddresses(allowed_media_urls)
    api = ApiContext(
        bus,
        page,
        closing or anyio.Event(),
        access,
        bounds,
        projections=projections,
        uploads=uploads,
        addresses=addresses,
    )
    known = [*routes(served, api, bus.tracing), *others]
    cross_origin = CrossOrigin(
        allowed_origins,
        methods=lambda scope: methods_of(known, scope),
        request_headers=[name for each in served for name in each.headers],
        seconds=bounds.preflight_seconds,
    )
    hosts = [*map(parse_host, allowed_hosts)]  # here, because a middleware is made at the first request
    guard = Middleware(
        Guard,
        access=access,
        allowed_hosts=hosts,
        headers=page.headers,
        cross_origin=cross_origin,
        bounds=bounds.http,
    )
    outer = [
        *([Middleware(TrustedProxies, networks=proxies)] if proxies else []),
        *([Middleware(BasePath, path=base)] if base else []),
    ]
    app = Starlette(
        routes=known,
        middleware=[*outer, guard],
        exception_handlers={BusError: answer_error, HTTPException: answer_error},
    )
    app.router.redirect_slashes = False
    app.state.sweep_forever, app.state.api = api.sweep_forever, api
    return app
