"""Check every request before it reaches a route.

A page of another site in the user's browser can reach 127.0.0.1, directly or through a host name that resolves to this
address. So the guard checks three things:

- The `Host` header names a known host. This stops DNS rebinding.
- The request comes from the server's own page or from no page. This stops cross-site request forgery.
- The request carries the start token, which is printed only to the terminal, or the reader's token.
"""

import re
from collections.abc import Iterable, Sequence
from hmac import compare_digest

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus.handlers.ui.replies import refuse

__all__ = ("Guard", "cookie_name", "local_hosts", "may_write")

_READS = frozenset({"GET", "HEAD"})
_MAY_WRITE = "lanebus.may_write"
_COOKIE_SAFE = re.compile(r"[^a-z0-9]+")
_UNKNOWN_VISITOR = (
    "lanebus: this page needs its start token.\n"
    "Open the URL that `lanebus serve` printed, which ends in ?token=…\n"
    "After a restart, the server has a new token."
)


def local_hosts(port: int) -> frozenset[str]:
    """Return the `Host` headers that a browser on this machine sends for a port."""
    names = ("127.0.0.1", "localhost", "[::1]")
    ports = (f":{port}", "") if port == 80 else (f":{port}",)
    return frozenset(name + suffix for name in names for suffix in ports)


def cookie_name(host: str) -> str:
    """Return the name of a server's cookie. The name contains the port, because browsers share cookies between
    ports."""
    return f"lanebus_{_COOKIE_SAFE.sub('_', host.lower()).strip('_')}"


def may_write(scope: Scope) -> bool:
    """Return whether a request that `Guard` accepted has the token that allows everything, not the reader's token."""
    return scope.get(_MAY_WRITE) is True


class Guard:
    """ASGI middleware that refuses requests without a valid token, from other sites, or with a foreign `Host` header.

    The reader's token allows only GET and HEAD. `headers` are added to every response.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        reader_token: str | None = None,
        allowed_hosts: Iterable[str],
        headers: Sequence[tuple[str, str]],
    ) -> None:
        if not token or reader_token == "":
            raise ValueError("a token is empty: pass a random text")
        if reader_token == token:
            raise ValueError("both tokens are the same: pass two different ones")
        self._app, self._token, self._headers = app, token.encode(), tuple(headers)
        self._reader_token = reader_token.encode() if reader_token is not None else None
        self._hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection. Web sockets are refused, because the server does not use them."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        host = hosts[0].lower() if len(hosts) == 1 else ""
        if host not in self._hosts:
            return refuse(403, "host_refused", "this server does not accept this host name: allow it with --allow-host")
        # A request from the page has the page's own origin. "null" and all other origins are refused.
        if any(origin.lower() not in {f"http://{host}", f"https://{host}"} for origin in headers.getlist("origin")):
            return refuse(403, "origin_refused", "requests from other sites are refused: use the page of this server")
        # "same-site" is refused too: for a browser, all ports of localhost are one site.
        if headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}:
            return refuse(
                403, "origin_refused", "links from other sites are refused: paste the URL into the address bar"
            )
        return self._check_token(scope, headers, host)

    def _check_token(self, scope: Scope, headers: Headers, host: str) -> Response | None:
        is_page = scope["path"] == "/" and scope["method"] in _READS
        offered = QueryParams(scope["query_string"]).get("token") if is_page else None
        if offered is not None and self._is_known(offered):
            reply = Response(status_code=303, headers={"Location": "/"})
            reply.set_cookie(cookie_name(host), offered, path="/", httponly=True, samesite="strict")
            return reply
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_known(credentials.strip()):
            return self._admit(scope, credentials.strip())
        cookie = cookie_parser(headers.get("cookie", "")).get(cookie_name(host))
        if offered is None and cookie is not None and self._is_known(cookie):
            return self._admit(scope, cookie)
        if is_page:
            return PlainTextResponse(_UNKNOWN_VISITOR, 401)
        return refuse(
            401,
            "token_missing",
            "the token is missing: open the URL that the server printed, or send its token as a bearer token",
        )

    def _admit(self, scope: Scope, token: str) -> Response | None:
        scope[_MAY_WRITE] = _is_same(token, self._token)
        if scope["method"] in _READS or may_write(scope):
            return None
        return refuse(
            403, "write_refused", "this token allows only reading: use the start token to send messages and commands"
        )

    def _is_known(self, text: str) -> bool:
        is_start = _is_same(text, self._token)
        return is_start or (self._reader_token is not None and _is_same(text, self._reader_token))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                headers = MutableHeaders(scope=message)
                for name, value in self._headers:
                    headers[name] = value
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)
        except Exception:
            # Answer here, because an outer handler would answer without the headers. The error is raised again, so that
            # it is logged.
            if not is_started:
                reply = refuse(500, "internal", "internal error: see the log of the server")
                await reply(scope, receive, send_with_headers)
            raise


def _is_same(text: str, token: bytes) -> bool:
    return compare_digest(text.encode("utf-8", "surrogatepass"), token)
