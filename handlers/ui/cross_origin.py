"""Answer browsers whose page has another origin that the server was told to allow (CORS)."""

import re
from collections.abc import Callable, Iterable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from lanebus.handlers.ui.errors import InvalidOrigin

__all__ = ("CrossOrigin", "parse_origin")

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
