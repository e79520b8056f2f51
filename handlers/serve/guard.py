"""Check every request before it reaches a route: proxies, the base path, the host, the origin and the principal."""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from lanebus.handlers.serve.access.access import Access, Refusal
from lanebus.handlers.serve.access.credentials import Identified
from lanebus.handlers.serve.bounds import DEFAULT_HTTP_BOUNDS, HttpBounds
from lanebus.handlers.serve.errors import InvalidBasePath, InvalidHost, InvalidOrigin, InvalidProxy
from lanebus.handlers.serve.replies import RequestRefused, refuse

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


# Answer browsers whose page has another origin that the server was told to allow (CORS).

_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
_URL = re.compile(rf"({_ORIGIN.pattern})[/?#].*", re.ASCII | re.DOTALL)
_DEFAULT_PORTS = {"http": 80, "https": 443}

_SENT = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Last-Event-ID",
    # Firefox lets scripts set it, and the AI SDK does.
    "User-Agent",
    # Trace Context, of browsers that record traces.
    "Traceparent",
    "Tracestate",
    "Baggage",
)
"""headers that clients of any endpoint may send"""

_EXPOSED = (
    "Accept-Ranges",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Lanebus-Position",
    "Location",
    "Retry-After",
    "WWW-Authenticate",
    "X-Vercel-AI-UI-Message-Stream",
)
"""headers of answers that scripts may read, besides those that browsers always show"""


def parse_origin(text: str) -> str:
    """Return an origin as browsers send it, such as `https://app.example.com`.

    Raises:
        InvalidOrigin: the text is no origin, or is "null" or a pattern.
    """
    lower = text.lower()
    if lower == "null" or "*" in text:
        raise InvalidOrigin(text, "name each origin; several are allowed by several options")
    found = _ORIGIN.fullmatch(lower)
    if found is None:
        longer = _URL.fullmatch(lower)
        if longer is not None:
            raise InvalidOrigin(text, f"leave out the path: {longer[1]}")
        raise InvalidOrigin(
            text, "write it as browsers send it, such as https://app.example.com or http://localhost:5173"
        )
    scheme, host, port = str(found[1]), str(found[2]), int(found[3] or 0)
    if found[3] is not None and not 0 < port < 65_536:
        raise InvalidOrigin(text, "use a port from 1 to 65535")
    is_default = port in {0, _DEFAULT_PORTS.get(scheme)}
    return f"{scheme}://{host}" + ("" if is_default else f":{port}")


class CrossOrigin:
    """The origins that may use a server besides its own, and what browsers need to know about them."""

    def __init__(
        self,
        allowed: Iterable[str],
        *,
        methods: Callable[[Scope], Iterable[str]],
        request_headers: Iterable[str] = (),
        seconds: int,
    ) -> None:
        """
        Args:
            allowed: the origins.
            methods: returns the methods of the endpoint that a request names by its path.
            request_headers: headers that clients may send, besides those that all endpoints know.
            seconds: time for which a browser may remember the answer to a preflight.

        Raises:
            InvalidOrigin: one of them is no origin.
        """
        self._allowed = frozenset(map(parse_origin, allowed))
        self._methods, self._seconds = methods, seconds
        self._sent = _listed(_SENT, request_headers)
        self._exposed = _listed(_EXPOSED)

    def allows(self, origin: str) -> bool:
        """Return whether an `Origin` header names an allowed origin."""
        return origin.lower() in self._allowed

    def answer_headers(self, headers: Headers) -> tuple[tuple[str, str], ...]:
        """Return what a response needs, so that a page of the request's origin may read it.

        Credentials are not allowed: the server has no cookies, and a token in a header does not need them.
        `Cross-Origin-Resource-Policy` stays as it is, because browsers do not apply it to requests with CORS.
        """
        origins = headers.getlist("origin")
        if len(origins) != 1 or not self.allows(origins[0]):
            return ()
        return (("Access-Control-Allow-Origin", origins[0]), ("Access-Control-Expose-Headers", self._exposed))

    def preflight(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a browser that asks whether it may send a request; None if this is no such question."""
        if scope["method"] != "OPTIONS" or "access-control-request-method" not in headers:
            return None
        if not self.answer_headers(headers):
            return None
        # A path without an endpoint has these methods too: the request itself is then answered with 404, which the
        # client can read. It could not read a refused preflight.
        methods = sorted({"GET", "HEAD", *self._methods(scope)})
        return Response(
            status_code=204,
            headers={
                "Access-Control-Allow-Methods": ", ".join(methods),
                "Access-Control-Allow-Headers": self._sent,
                "Access-Control-Max-Age": str(self._seconds),
            },
        )


def _listed(*names: Iterable[str]) -> str:
    unique = {name.lower(): name for some in names for name in some}
    return ", ".join(unique[name] for name in sorted(unique))


# Check every request before it reaches a route.
#
# A page of another site in the user's browser can reach 127.0.0.1, directly or through a host name that resolves to
# this address. So the guard checks three things:
#
# - The `Host` header names a known host. This stops DNS rebinding.
# - The request comes from the server's own page, from an allowed origin, or from no page. This stops cross-site request
#   forgery.
# - The `Authorization` header carries a token, or the server's hook knows the principal. The page's own files need
#   none.
#
# No cookie is set or read: browsers send the cookies of one port of a host to all its other ports.

_PUBLIC = frozenset({"/", "/favicon.ico", "/api/openapi.json"})
_READS = frozenset({"GET", "HEAD"})
_IDENTIFIED = "lanebus.identified"
_HOST_FORM = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_SHOWN = re.compile(r"[A-Za-z0-9+.:/\[\]_-]{1,255}", re.ASCII)


def local_hosts(port: int) -> frozenset[str]:
    """Return the `Host` headers that a browser on this machine sends for a port."""
    names = ("127.0.0.1", "localhost", "[::1]")
    ports = (f":{port}", "") if port == 80 else (f":{port}",)
    return frozenset(name + suffix for name in names for suffix in ports)


def parse_host(text: str) -> str:
    """Return a host as clients name it in the header `Host`: a name or an address, with a port unless it is the default
    one of the scheme.

    Raises:
        InvalidHost: the text is no host, or is a pattern.
    """
    host = text.lower()
    if _HOST_FORM.fullmatch(host):
        return host
    inner = host.partition("://")[2].partition("/")[0]
    if _HOST_FORM.fullmatch(inner):
        raise InvalidHost(text, f"leave out the scheme and the path: {inner}")
    if "*" in text:
        raise InvalidHost(text, "name each host; several are allowed by several options")
    raise InvalidHost(text, "write HOST:PORT as in the address of the page, such as bus.example.com:8420")


def identified(scope: Scope) -> Identified:
    """Return the principal of a request that `Guard` accepted."""
    found: object = scope[_IDENTIFIED]
    assert isinstance(found, Identified)  # noqa: S101  # only for the type checker
    return found


def set_identified(scope: Scope, known: Identified) -> None:
    """Set the principal of a request, which must be accepted already."""
    scope[_IDENTIFIED] = known


def require_valid(scope: Scope) -> None:
    """Check that the token of a request is still valid. A client may send the end of a body long after the head, which
    has the token, or wait long for its turn. Requests for public files have no token.

    Raises:
        RequestRefused: 401; the token was revoked or replaced, or has expired.
    """
    found: object = scope.get(_IDENTIFIED)
    if isinstance(found, Identified) and not found.is_valid():
        raise RequestRefused(401, "token_unknown", _ENDED, {"WWW-Authenticate": "Bearer", "Connection": "close"})


# An answer is refused too, after its request was carried out: so the text does not say that nothing was done.
_ENDED = (
    "the token ended while the request was under way: send it again with another token, and with its key if it has one"
)


def address_of(scope: Scope) -> str:
    """Return the network address of the client; "" if it is unknown."""
    client = cast("tuple[str, int] | None", scope.get("client"))
    return client[0] if client else ""


def owner_of(scope: Scope) -> str:
    """Return whom the work and the memory for a request count for: the principal, or the address without one."""
    found: object = scope.get(_IDENTIFIED)
    return found.principal.name if isinstance(found, Identified) else address_of(scope)


def is_public(scope: Scope) -> bool:
    """Return whether a request is for a file of the page, or for the description of the API.

    These are part of the program and hold no secret.
    """
    path = route_path(scope)
    return scope["method"] in _READS and (path in _PUBLIC or path.startswith("/static/"))


class Guard:
    """ASGI middleware that refuses requests of unknown principals, from other sites, or with a foreign `Host`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        allowed_hosts: Iterable[str],
        headers: Sequence[tuple[str, str]],
        cross_origin: CrossOrigin,
        bounds: HttpBounds = DEFAULT_HTTP_BOUNDS,
    ) -> None:
        """
        Args:
            app: the guarded application.
            access: identifies the principals.
            allowed_hosts: accepted `Host` headers.
            headers: headers of every response.
            cross_origin: other origins that are accepted.
            bounds: how large the head of a request may be.
        """
        self._app, self._access, self._headers, self._cross_origin = app, access, tuple(headers), cross_origin
        self._hosts, self._bounds = frozenset(host.lower() for host in allowed_hosts), bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection. Web sockets are refused, because the server does not use them."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        found = self._refused_head(scope) or self._refused_site(scope, headers)
        if found is None:
            preflight = self._cross_origin.preflight(scope, headers)
            if preflight is not None:
                return preflight  # browsers send it without a token
            if is_public(scope):
                return None
            known = await self._access.identify(_joined(headers), address_of(scope), peer=peer_of(scope))
            if isinstance(known, Identified):
                set_identified(scope, known)
                return None
            found = known
        else:
            origin = headers.get("origin", "") if found.error == "origin_refused" else ""
            self._access.log_refusal(found.error, address_of(scope), origin=origin and _shown(origin, "unprintable"))
        reply = refuse(found.status, found.error, found.message)
        if found.retry_after is not None:
            reply.headers["Retry-After"] = str(found.retry_after)
        if found.status == 401:
            reply.headers["WWW-Authenticate"] = "Bearer"
        return reply

    def _refused_head(self, scope: Scope) -> Refusal | None:
        """Return why a request is too large to be looked at: anyone may send it, also without a token."""
        fields: Sequence[tuple[bytes, bytes]] = scope["headers"]
        size = len(scope["path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in fields)
        if len(fields) <= self._bounds.headers and size <= self._bounds.head_bytes:
            return None
        most = f"{self._bounds.headers} headers, and {self._bounds.head_bytes} bytes of path, query and headers"
        return Refusal(431, "head_too_large", f"a request has at most {most}: send fewer")

    def _refused_site(self, scope: Scope, headers: Headers) -> Refusal | None:
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        asked = (forwarded_host(scope) or host).lower()
        for each in (host, asked):
            if each not in self._hosts:
                allow = f"--allow-host {_shown(each, 'HOST:PORT')}"
                return Refusal(
                    403, "host_refused", f"this server does not accept this host name: allow it with {allow}"
                )
        # A request from the page has the page's own origin. "null" and all other origins are refused, unless they are
        # allowed. Behind a proxy without X-Forwarded-Proto, the server does not know that the page came over HTTPS.
        schemes = ("https",) if scope.get("scheme") == "https" else ("http", "https")
        own = {f"{scheme}://{asked}" for scheme in schemes}
        origins = headers.getlist("origin")
        for origin in origins:
            if origin.lower() not in own and not self._cross_origin.allows(origin):
                return Refusal(
                    403,
                    "origin_refused",
                    "requests from other sites are refused: use the page of this server, or allow the site with"
                    f" --allow-origin {_shown(origin if '://' in origin else '', 'ORIGIN')}",
                )
        is_allowed = len(origins) == 1 and self._cross_origin.allows(origins[0])
        # "same-site" is refused too: for a browser, all ports of localhost are one site. A link has no origin.
        if not is_allowed and headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return Refusal(
                403, "origin_refused", "links from other sites are refused: paste the URL into the address bar"
            )
        return None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False
        added = self._headers + self._cross_origin.answer_headers(Headers(scope=scope))

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                headers = MutableHeaders(scope=message)
                for name, value in added:
                    headers[name] = value
                if not is_public(scope) or "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"  # only files of the page may be kept
                headers.add_vary_header("Origin")
            await send(message)

        try:
            await (await self._refusal(scope) or self._app)(scope, receive, send_with_headers)
        except Exception:
            # Answer here, because an outer handler would answer without the headers. The error is raised again, so that
            # it is logged.
            if not is_started:
                reply = refuse(500, "internal", "internal error: see the log of the server")
                await reply(scope, receive, send_with_headers)
            raise


def _shown(text: str, placeholder: str) -> str:
    """Return a part of a request for an error's text; the placeholder if it is no origin or host."""
    return text if _SHOWN.fullmatch(text) else placeholder


def _joined(headers: Headers) -> Mapping[str, str]:
    """Return all headers by name. Several of one name are joined, so that a second one cannot hide behind the first."""
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        found.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


# Serve the application below a path of another site, such as `/lanebus`.

_BASE_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+", re.ASCII)


def parse_base_path(text: str, taken: Iterable[str] = ()) -> str:
    """Return a base path without a slash at its end; "" if there is none.

    Args:
        text: the path. "/" means none.
        taken: patterns of the paths that are served below the base path. A proxy may remove the base path or not, so no
            pattern may begin with it.

    Raises:
        InvalidBasePath: the text is no path, or a pattern begins with it.
    """
    path = text.rstrip("/")
    if not path:
        return ""
    if _BASE_PATH.fullmatch(path) is None or {".", ".."} & {*path.split("/")}:
        raise InvalidBasePath(text, "write a path of letters, digits and - . _ ~ that begins with /, such as /lanebus")
    parts = path.split("/")
    for pattern in taken:
        own = pattern.split("/")
        if len(parts) <= len(own) and all(
            part == each or each.startswith("{") for part, each in zip(parts, own, strict=False)
        ):
            raise InvalidBasePath(text, f"choose another one: the server itself has {pattern}")
    return path


def route_path(scope: Scope) -> str:
    """Return the path of a request without the base path."""
    path, base = str(scope["path"]), str(scope.get("root_path", ""))
    return path.removeprefix(base) if base and path.startswith(f"{base}/") else path


class BasePath:
    """ASGI middleware that serves an application below a base path, whether a proxy removes the base path or not."""

    def __init__(self, app: ASGIApp, *, path: str) -> None:
        """
        Args:
            app: the application.
            path: the base path, as `parse_base_path` returns it; not empty.
        """
        self._app, self._base = app, path

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle an ASGI connection."""
        # No coroutine of its own: it would take memory as long as a stream is open.
        if scope["type"] == "http":
            path = str(scope["path"])
            rest = path.removeprefix(self._base) if f"{path}/".startswith(f"{self._base}/") else path
            scope = {**scope, "root_path": self._base, "path": self._base + (rest or "/")}
        return self._app(scope, receive, send)


# Believe what trusted proxies say about a request: the client's address, the scheme and the host.

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PEER_KEY, _FORWARDED_HOST_KEY = "lanebus.peer", "lanebus.forwarded_host"


def parse_proxies(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of proxies. An address is a network of one.

    Raises:
        InvalidProxy: a text is neither an IP address nor a network, or the network is every address.
    """
    return tuple(map(_network, texts))


def _network(text: str) -> Network:
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        pass
    else:
        if not found.prefixlen:
            remedy = "name your proxies: with every address, each client chooses its own address and host by headers"
            raise InvalidProxy(text, remedy)
        return found
    try:
        whole = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidProxy(text, "write an IP address or a network, such as 10.0.0.4 or 10.0.0.0/24") from None
    raise InvalidProxy(text, f"write the network as {whole}, or the address without its length")


def peer_of(scope: Scope) -> str | None:
    """Return the address of the trusted proxy that sent a request; None if no trusted proxy did."""
    peer = cast("tuple[str, int] | None", scope.get(_PEER_KEY))
    return peer[0] if peer else None


def forwarded_host(scope: Scope) -> str | None:
    """Return the host that the client asked a trusted proxy for; None if no trusted proxy named one.

    A proxy may pass on a client's `X-Forwarded-Host`, so this host does not replace the check of `Host`.
    """
    return cast("str | None", scope.get(_FORWARDED_HOST_KEY))


class TrustedProxies:
    """ASGI middleware that reads `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` of trusted proxies.

    Those of other clients are ignored. Each proxy adds to the end of a header, so the headers are read from there: the
    client is the last address that is no trusted proxy. `Forwarded` is not read.
    """

    def __init__(self, app: ASGIApp, *, networks: Iterable[Network]) -> None:
        """
        Args:
            app: the application.
            networks: the proxies, see `parse_proxies`.
        """
        self._app, self._networks = app, tuple(networks)
        names = [str(each) for each in self._networks]
        # uvicorn has types of its own for the same interface.
        self._believed = cast("ASGIApp", ProxyHeadersMiddleware(cast("ASGI3Application", self._checked), names))

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle an ASGI connection."""
        client = cast("tuple[str, int] | None", scope.get("client"))
        address = parse_address(client[0]) if client else None
        if scope["type"] != "http" or client is None or address is None:
            return self._app(scope, receive, send)
        scope = {**scope, "client": (str(address), client[1])}
        if not any(address in network for network in self._networks):
            return self._app(scope, receive, send)
        scope[_PEER_KEY] = scope["client"]
        hosts = ",".join(Headers(scope=scope).getlist("x-forwarded-host"))
        if host := hosts.rpartition(",")[2].strip():
            scope[_FORWARDED_HOST_KEY] = host
        return self._believed(scope, receive, send)

    def _checked(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if parse_address(scope["client"][0]) is None:  # a proxy may write "unknown", or a name that hides the address
            scope["client"] = scope[_PEER_KEY]
        return self._app(scope, receive, send)


def parse_address(text: str) -> _Address | None:
    """Return an IP address; None if the text is none. A socket for both versions shows IPv4 addresses as IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
