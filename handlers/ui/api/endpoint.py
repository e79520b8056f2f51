"""Declarations of endpoints, and the routes made from them."""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lanebus.bus.tracing import Tracing
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.parameter import Parameter, check_parameters
from lanebus.handlers.ui.tracing import TracedRoute

__all__ = ("ApiEndpoint", "Handler", "routes")

Handler: TypeAlias = Callable[[ApiContext, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """An endpoint of the API, or a file of the page."""

    path: str
    """the pattern of its path, such as `/api/sessions/{session}`"""
    handler: Handler
    """answers a request; the docstring is the text of the reference"""
    method: Literal["GET", "POST", "DELETE"] = "GET"
    parameters: tuple[Parameter[object], ...] = ()
    """its query parameters"""
    is_file: bool = False
    """whether it is a file of the page, which ignores the query and is no part of the API"""
    is_traced: bool = False
    """whether its requests are recorded as parts of their clients' traces"""

    @property
    def summary(self) -> str:
        """The first paragraph of the handler's docstring, on one line."""
        return " ".join((inspect.getdoc(self.handler) or "").split("\n\n", maxsplit=1)[0].split())

    def route(self, api: ApiContext, tracing: Tracing) -> Route:
        """Return the route of this endpoint."""
        names = frozenset(each.name for each in self.parameters)

        async def handle(request: Request) -> Response:
            if not self.is_file:
                check_parameters(request.query_params, names)
            return await self.handler(api, request)

        traced = [Middleware(TracedRoute, route=self.path, tracing=tracing)] if self.is_traced else None
        return Route(self.path, handle, methods=[self.method], middleware=traced)


def routes(endpoints: Iterable[ApiEndpoint], api: ApiContext, tracing: Tracing) -> list[Route]:
    """Return the routes of endpoints, in their order.

    Args:
        endpoints: the endpoints.
        api: what they share.
        tracing: records the requests of the endpoints that are traced.
    """
    return [endpoint.route(api, tracing) for endpoint in endpoints]
