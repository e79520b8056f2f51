"""State shared by the connections of one route: whether it still leads to the right server."""

from collections.abc import Sequence
from typing import Protocol

from lanebus.bus.errors import Redirected, Refused
from lanebus.bus.servers.replies import Argument, Reply

__all__ = ("FixedRouteState", "RouteState")


class RouteState(Protocol):
    """Routing state shared by the connections to one server. Invalidating it invalidates them all."""

    @property
    def is_over(self) -> bool:
        """The route leads to the wrong server, so all connections made with it are broken."""
        ...

    def invalidate(self, refusal: Refused) -> None:
        """Handle an error reply which shows that the route leads to the wrong server."""
        ...

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Send one command to the server named by an ASK redirect. Later commands go to the old server."""
        ...


class FixedRouteState:
    """State of a route to a server that never redirects: a single server, or the primary that Sentinels name."""

    def __init__(self) -> None:
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        del refusal
        self.is_over = True

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Return the redirect unchanged, as there is no other server."""
        del command
        return redirect
