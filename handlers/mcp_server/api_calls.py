"""Call the HTTP API within the process, for a principal that is known already."""

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

import httpx2
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from lanebus.handlers.access.credentials import Identified
from lanebus.handlers.ui.auth import address_of, identified, set_identified

__all__ = ("ApiCalls", "ApiReply", "Caller")


class Caller(NamedTuple):
    """The client of a call, for the access rules."""

    known: Identified
    address: str
    """its network address, for the audit log"""

    @classmethod
    def of(cls, scope: Scope) -> "Caller":
        """Return the client of an HTTP request that the guard accepted."""
        return cls(identified(scope), address_of(scope))


class ApiReply(NamedTuple):
    """The answer of the API."""

    status: int
    value: JsonValue

    @property
    def is_error(self) -> bool:
        """Whether the request was refused or failed."""
        return self.status >= 400

    @property
    def problem(self) -> str:
        """The text of an error."""
        value = self.value
        text = value.get("detail") if isinstance(value, dict) else None
        return text if isinstance(text, str) else f"the request failed with status {self.status}"


class ApiCalls:
    """The API of one application, behind its guard: the guard has accepted the client's own request."""

    def __init__(self, app: Starlette, *, read_bytes: int) -> None:
        """
        Args:
            app: the application of the page, see `create_app`.
            read_bytes: maximum number of bytes of an answer. A larger one counts as refused.
        """
        self._app = Starlette(routes=app.routes, exception_handlers=app.exception_handlers)
        self._app.router.redirect_slashes = False
        self._most = read_bytes

    async def call(
        self, caller: Caller, method: str, path: str, *, query: Mapping[str, str], body: JsonValue = None
    ) -> ApiReply:
        """Send a request, and return its answer. A cancelled call may have published.

        Args:
            caller: the client. The endpoint asks the access rules what it may do.
            method: the HTTP method.
            path: the path, with its parts encoded.
            query: the query parameters.
            body: JSON of the body; None means no body.
        """

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            set_identified(scope, caller.known)
            await self._app(scope, receive, send)

        transport = httpx2.ASGITransport(app, raise_app_exceptions=False, client=(caller.address, 0))
        async with httpx2.AsyncClient(transport=transport, base_url="http://mcp") as client:
            try:
                reply = await client.request(method, path, params=query, json=body)
            except httpx2.InvalidURL:  # over 64 KiB
                return ApiReply(400, {"detail": "an argument is too long: shorten it"})
        if len(reply.content) > self._most:
            return ApiReply(413, {"detail": "the answer is too large: ask for less"})
        try:
            return ApiReply(reply.status_code, cast("JsonValue", json.loads(reply.content or b"null")))
        except ValueError:  # an error that no handler made an answer of, which the log has
            return ApiReply(500, None)
