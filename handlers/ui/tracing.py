"""Record the requests that publish, as parts of the traces that their clients began."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lanebus.bus.tracing import Tracing

__all__ = ("HttpRecord", "HttpTracing", "TracedRoute")


class HttpRecord(Protocol):
    """A request that is being recorded."""

    def answered(self, status: int) -> None:
        """Record the status of the response."""
        ...


@runtime_checkable
class HttpTracing(Protocol):
    """Records HTTP requests. If a bus's `Tracing` also implements this protocol, `serve` uses it."""

    def requesting(
        self, method: str, route: str, scheme: str, path: str, headers: Iterable[tuple[str, str]]
    ) -> AbstractContextManager[HttpRecord | None]:
        """Record a request for the length of the block.

        Args:
            method: HTTP method, in upper case.
            route: the route's pattern, such as `/api/sessions/{session}/messages`.
            scheme: "http" or "https".
            path: the path that was requested.
            headers: names in lower case, with their values.

        Returns:
            A context manager. Its value is None if the server's own instrumentation already records the request.
        """
        ...


class TracedRoute:
    """ASGI middleware that records the requests to one route. `Guard` runs first, so only requests with a token are
    recorded."""

    def __init__(self, app: ASGIApp, *, route: str, tracing: Tracing) -> None:
        self._app, self._route = app, route
        self._tracing = tracing if isinstance(tracing, HttpTracing) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if self._tracing is None:
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        asked = (scope["method"], self._route, scope["scheme"], scope["path"])
        with self._tracing.requesting(*asked, headers) as record:

            async def send_recorded(message: Message) -> None:
                if record is not None and message["type"] == "http.response.start":
                    record.answered(message["status"])
                await send(message)

            await self._app(scope, receive, send_recorded)
