"""Call the HTTP API within the process, with the headers of the client."""

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

import httpx2
from pydantic import JsonValue
from starlette.requests import Request
from starlette.types import ASGIApp

__all__ = ("ApiCalls", "ApiReply", "Caller")

_KEPT = (
    "authorization",
    "host",
    "origin",
    "sec-fetch-site",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
)


class Caller(NamedTuple):
    """The client of a call, for the access rules."""

    headers: Mapping[str, str]
    """headers that name the client"""
    address: str = ""

    @classmethod
    def of(cls, request: Request) -> "Caller":
        """Return the client of an HTTP request. Other headers, such as those of the body, are left out."""
        kept = {name: value for name, value in request.headers.items() if name in _KEPT}
        return cls(kept, "" if request.client is None else request.client.host)


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
    """The API of one application."""

    def __init__(self, app: ASGIApp, *, read_bytes: int) -> None:
        """
        Args:
            app: the application of the page, see `create_app`.
            read_bytes: maximum number of bytes of an answer. A larger one counts as refused.
        """
        self._app, self._most = app, read_bytes

    async def call(
        self, caller: Caller, method: str, path: str, *, query: Mapping[str, str], body: JsonValue = None
    ) -> ApiReply:
        """Send a request, and return its answer. A cancelled call may have published.

        Args:
            caller: the client.
            method: the HTTP method.
            path: the path, with its parts encoded.
            query: the query parameters.
            body: JSON of the body; None means no body.
        """
        # The address as a proxy or a client has it: the application decides whether to believe the headers.
        transport = httpx2.ASGITransport(self._app, raise_app_exceptions=False, client=(caller.address, 0))
        host = caller.headers.get("host", "mcp")
        async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            sent = {name: value for name, value in caller.headers.items() if name != "host"}
            reply = await client.request(
                method, path, params=query, headers=sent, json=body if body is not None else None
            )
        if len(reply.content) > self._most:
            return ApiReply(413, {"detail": "the answer is too large: ask for less"})
        return ApiReply(reply.status_code, cast("JsonValue", json.loads(reply.content or b"null")))
