"""The MCP session that a stored event belongs to.

The SDK passes a store neither the session nor the client. Its tasks inherit the context of the request that opened
their session, so a context variable tells it.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field
from secrets import token_hex

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ("EventScopes", "current_scope")

_HEADER = "mcp-session-id"


@dataclass(slots=True)
class _EventScope:
    name: str = field(default_factory=token_hex)
    """id of the MCP session. A random name until the SDK has given the session an id"""


_current: ContextVar[_EventScope | None] = ContextVar("lanebus.mcp_events", default=None)


def current_scope() -> str:
    """Return the name of the MCP session of this task; "" outside of `EventScopes`."""
    found = _current.get()
    return "" if found is None else found.name


class EventScopes:
    """ASGI middleware that names the MCP session of each request, and of the tasks that a request starts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection. The SDK answers for the lifespan and for other connections."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get(_HEADER)
        known = _EventScope() if asked is None else _EventScope(asked)

        async def send_and_name(message: Message) -> None:
            if asked is None and message["type"] == "http.response.start":
                known.name = Headers(raw=message["headers"]).get(_HEADER, known.name)
            await send(message)

        token = _current.set(known)
        try:
            await self._app(scope, receive, send_and_name)
        finally:
            _current.reset(token)
