"""Build the web application: the routes, and the guard that checks requests before any route."""

from collections.abc import Iterable

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from lanebus.bus.bus import Bus
from lanebus.bus.errors import BusError
from lanebus.handlers.access.access import Access, Identify
from lanebus.handlers.access.credentials import Credentials, TokenFiles
from lanebus.handlers.access.request import Authorize
from lanebus.handlers.projections.projection import Projection
from lanebus.handlers.protocols.client_content import MediaAddresses
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import methods_of, routes
from lanebus.handlers.ui.api.table import endpoints
from lanebus.handlers.ui.auth import Guard, parse_host
from lanebus.handlers.ui.base_path import BasePath, parse_base_path
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.cross_origin import CrossOrigin
from lanebus.handlers.ui.hosted import HostedApp
from lanebus.handlers.ui.page import load_page
from lanebus.handlers.ui.proxies import TrustedProxies, parse_proxies
from lanebus.handlers.ui.replies import answer_error
from lanebus.handlers.ui.uploads.uploads import Uploads

__all__ = ("create_app",)


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
        *(bus, page, closing or anyio.Event(), access, bounds),
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
