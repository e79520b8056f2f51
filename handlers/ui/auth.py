"""Check every request before it reaches a route.

A page of another site in the user's browser can reach 127.0.0.1, directly or through a host name that resolves to this
address. So the guard checks three things:

- The `Host` header names a known host. This stops DNS rebinding.
- The request comes from the server's own page, from an allowed origin, or from no page. This stops cross-site request
  forgery.
- The `Authorization` header carries a token, or the server's hook knows the principal. The page's own files need none.

No cookie is set or read: browsers send the cookies of one port of a host to all its other ports.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus.handlers.access.access import Access, Refusal
from lanebus.handlers.access.credentials import Identified
from lanebus.handlers.ui.base_path import route_path
from lanebus.handlers.ui.bounds import DEFAULT_HTTP_BOUNDS, HttpBounds
from lanebus.handlers.ui.cross_origin import CrossOrigin
from lanebus.handlers.ui.errors import InvalidHost
from lanebus.handlers.ui.proxies import forwarded_host, peer_of
from lanebus.handlers.ui.replies import RequestRefused, refuse

__all__ = (
    "Guard",
    "address_of",
    "identified",
    "local_hosts",
    "owner_of",
    "parse_host",
    "require_valid",
    "set_identified",
)

_PUBLIC = frozenset({"/", "/favicon.ico", "/api/openapi.json"})
_READS = frozenset({"GET", "HEAD"})
_IDENTIFIED = "lanebus.identified"
_HOST = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
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
    if _HOST.fullmatch(host):
        return host
    inner = host.partition("://")[2].partition("/")[0]
    if _HOST.fullmatch(inner):
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
