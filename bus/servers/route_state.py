"""The state that the connections of one route share: whether the route still leads to the right server."""

from collections.abc import Sequence
from typing import Protocol

from lanebus.bus.errors import Redirected, Refused
from lanebus.bus.servers.replies import Argument, Reply

__all__ = ("FixedRouteState", "RouteState")


class RouteState(Protocol):
    """Routing state that the connections to one server share. Invalidating the state breaks all these connections."""

    @property
    def is_over(self) -> bool:
        """Whether the route leads to the wrong server. If so, all connections that were made with it are broken."""
        ...

    def invalidate(self, refusal: Refused) -> None:
        """Handle an error reply that shows that the route leads to the wrong server."""
        ...

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Send one command to the server that an ASK redirect names. The route does not change for later commands."""
        ...


class FixedRouteState:
    """Routing state for a server that never redirects: a single server, or the primary that Sentinels name."""

    def __init__(self) -> None:
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        del refusal
        self.is_over = True

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Return the redirect unchanged, because there is no other server."""
        del command
        return redirect
