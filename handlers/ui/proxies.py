"""Believe what trusted proxies say about a request: the client's address, the scheme and the host."""

import ipaddress
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, TypeAlias, cast

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from lanebus.handlers.ui.errors import InvalidProxy

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application  # the package does not export it

__all__ = ("Network", "TrustedProxies", "forwarded_host", "parse_address", "parse_proxies", "peer_of")

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PEER, _HOST = "lanebus.peer", "lanebus.forwarded_host"


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
    peer = cast("tuple[str, int] | None", scope.get(_PEER))
    return peer[0] if peer else None


def forwarded_host(scope: Scope) -> str | None:
    """Return the host that the client asked a trusted proxy for; None if no trusted proxy named one.

    A proxy may pass on a client's `X-Forwarded-Host`, so this host does not replace the check of `Host`.
    """
    return cast("str | None", scope.get(_HOST))


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
        scope[_PEER] = scope["client"]
        hosts = ",".join(Headers(scope=scope).getlist("x-forwarded-host"))
        if host := hosts.rpartition(",")[2].strip():
            scope[_HOST] = host
        return self._believed(scope, receive, send)

    def _checked(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if parse_address(scope["client"][0]) is None:  # a proxy may write "unknown", or a name that hides the address
            scope["client"] = scope[_PEER]
        return self._app(scope, receive, send)


def parse_address(text: str) -> _Address | None:
    """Return an IP address; None if the text is none. A socket for both versions shows IPv4 addresses as IPv6."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
