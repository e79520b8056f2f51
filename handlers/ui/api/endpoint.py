"""Declarations of endpoints, and the routes made from them."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from lanebus.bus.tracing import Tracing
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.parameter import Parameter, check_parameters
from lanebus.handlers.ui.body import give_back
from lanebus.handlers.ui.tracing import TracedRoute

__all__ = ("ApiEndpoint", "Handler", "methods_of", "routes")


class _Position(IntegerConvertor):
    """An integer in a path. Starlette's own has no bound, and Python refuses to read 4,301 digits."""

    regex = "[0-9]{1,18}"


register_url_convertor("lanebus_position", _Position())  # under a name of its own: an application may use "int"

Handler: TypeAlias = Callable[[ApiContext, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEndpoint:
    """An endpoint of the API, or a file of the page."""

    path: str
    """the pattern of its path, such as `/api/sessions/{session}`"""
    handler: Handler
    """answers a request; the docstring is the text of the reference"""
    method: Literal["GET", "POST", "PATCH", "DELETE"] = "GET"
    parameters: tuple[Parameter[object], ...] = ()
    """its query parameters"""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """request headers that it reads, with their descriptions"""
    body: object = None
    """type of the JSON body, for its schema; None means no JSON"""
    body_type: str | None = None
    """content type of a body of other bytes; None means JSON, or no body"""
    answer: object = None
    """type of the JSON that it returns, for its schema; None means other bytes"""
    media_types: tuple[str, ...] = ("application/json",)
    """content types of its answers"""
    statuses: tuple[int, ...] = (200,)
    """HTTP statuses of its answers"""
    errors: tuple[int, ...] = ()
    """HTTP statuses of errors that other endpoints do not have; see `all_errors`"""
    is_public: bool = False
    """whether it needs no token"""
    is_file: bool = False
    """whether it is a file of the page, which ignores the query and is no part of the API"""
    is_traced: bool = False
    """whether its requests are recorded as parts of their clients' traces"""

    @property
    def summary(self) -> str:
        """The first paragraph of the handler's docstring, on one line."""
        return " ".join((inspect.getdoc(self.handler) or "").split("\n\n", maxsplit=1)[0].split())

    @property
    def name(self) -> str:
        """The name of the handler, in camel case."""
        first, *rest = self.handler.__name__.split("_")
        return first + "".join(map(str.capitalize, rest))

    @property
    def all_errors(self) -> tuple[int, ...]:
        """HTTP statuses of its errors."""
        common = {400} if self.is_public else {400, 401, 403, 404, 409, 429, 503, 504}
        of_body = set[int]() if self.body is None and self.body_type is None else {408, 413, 415}
        return tuple(sorted(common | of_body | {*self.errors}))

    def route(self, api: ApiContext, tracing: Tracing) -> Route:
        """Return the route of this endpoint."""
        names = frozenset(each.name for each in self.parameters)

        async def handle(request: Request) -> Response:
            if not self.is_file:
                check_parameters(request.query_params, names)
            try:
                return await self.handler(api, request)
            finally:
                give_back(request.scope)

        traced = [Middleware(TracedRoute, route=self.path, tracing=tracing)] if self.is_traced else None
        path = self.path.replace(":int}", ":lanebus_position}")
        return Route(path, handle, methods=[self.method], middleware=traced)


def routes(endpoints: Iterable[ApiEndpoint], api: ApiContext, tracing: Tracing) -> list[Route]:
    """Return the routes of endpoints, in their order.

    Args:
        endpoints: the endpoints.
        api: what they share.
        tracing: records the requests of the endpoints that are traced.
    """
    return [endpoint.route(api, tracing) for endpoint in endpoints]


def methods_of(routes: Iterable[Route], scope: Scope) -> frozenset[str]:
    """Return the methods of the routes that have the path of a request; none if no route has it."""
    found = [route.methods or set[str]() for route in routes if route.matches(scope)[0] is not Match.NONE]
    return frozenset[str]().union(*found)
