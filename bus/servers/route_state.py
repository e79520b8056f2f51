"""What the connections of one route share: whether it still leads to the right server."""

from collections.abc import Sequence
from typing import Protocol

from lanebus.bus.errors import Redirected, Refused
from lanebus.bus.servers.replies import Argument, Reply

__all__ = ("FixedRouteState", "RouteState")


class RouteState(Protocol):
    """Routing state shared by the connections to one server. Invalidating it invalidates them all."""

    @property
    def is_over(self) -> bool:
        """The route led to the wrong server, or leads to it no longer: connections made by it are broken."""
        ...

    def invalidate(self, refusal: Refused) -> None:
        """Note an answer which says that a connection leads to the wrong server."""
        ...

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """Send one command, this once, where a server that gives a slot away said to send it."""
        ...


class FixedRouteState:
    """The state of a route whose server redirects no command: one server, or the primary that Sentinels name."""

    def __init__(self) -> None:
        self.is_over = False

    def invalidate(self, refusal: Refused) -> None:
        """See `RouteState`."""
        del refusal
        self.is_over = True

    async def ask(self, redirect: Redirected, command: Sequence[Argument]) -> Reply | Refused:
        """See `RouteState`. There is no other server: the answer stays what it was."""
        del command
        return redirect
