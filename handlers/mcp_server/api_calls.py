"""Call the HTTP API within the process, for a principal that is known already."""

import json
from collections.abc import Mapping
from typing import NamedTuple, cast

import anyio
import httpx2
from pydantic import JsonValue
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from lanebus.handlers.access.credentials import Identified
from lanebus.handlers.ui.auth import address_of, identified, set_identified
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.paced import paid_by

__all__ = ("ApiCalls", "ApiReply", "Caller")

_SHARE = "lanebus.mcp"


class Caller(NamedTuple):
    """The client of a call, for the access rules."""

    known: Identified
    address: str
    """its network address, for the audit log"""
    share: Share | None = None
    """holds the memory of a large answer until the client's request was answered; None means no limit but its size"""

    @classmethod
    def of(cls, scope: Scope) -> "Caller":
        """Return the client of an HTTP request that the guard accepted."""
        return cls(identified(scope), address_of(scope), cast("Share | None", scope.get(_SHARE)))

    @staticmethod
    def hold(scope: Scope, share: Share) -> None:
        """Let the calls for an HTTP request hold their memory in a share."""
        scope[_SHARE] = share


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

    def __init__(
        self, app: Starlette, *, read_bytes: int, small_bytes: int = 65_536, held_bytes: int = 0, seconds: float = 10.0
    ) -> None:
        """
        Args:
            app: the application of the page, see `create_app`.
            read_bytes: maximum number of bytes of an answer. A larger one counts as refused.
            small_bytes: size of an answer above which the client's share must hold memory for it.
            held_bytes: bytes to hold for such an answer.
            seconds: longest wait for this memory.
        """
        self._app = Starlette(routes=app.routes, exception_handlers=app.exception_handlers)
        self._app.router.redirect_slashes = False
        self._most, self._small, self._held, self._seconds = read_bytes, small_bytes, held_bytes, seconds

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

        Raises:
            ServerBusy: the memory for a large answer was not free in time.
        """
        try:
            request = httpx2.Request(method, f"http://mcp{path}", params=query, json=body)
        except httpx2.InvalidURL:  # over 64 KiB
            return ApiReply(400, {"detail": "an argument is too long: shorten it"})
        share = caller.share if method == "GET" else None  # only a read can be sent again
        reply = await self._answer(caller, request, self._most if share is None else min(self._small, self._most))
        if reply is None and share is not None:
            await share.take(self._held, seconds=self._seconds)
            reply = await self._answer(caller, request, self._most, share)
        return reply or ApiReply(413, {"detail": "the answer is too large: ask for less"})

    async def _answer(
        self, caller: Caller, request: httpx2.Request, most: int, paid: Share | None = None
    ) -> ApiReply | None:
        """Return the answer; None if it has more than `most` bytes.

        Args:
            caller: the client.
            request: the request.
            most: maximum number of bytes.
            paid: holds the memory of the answer; None if nothing does.
        """
        stop, size = anyio.CancelScope(), 0

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            async def counted(message: Message) -> None:
                nonlocal size
                size += len(message.get("body", b""))
                if size > most:
                    stop.cancel()
                else:
                    await send(message)

            set_identified(scope, caller.known)
            if paid is not None:
                paid_by(scope, paid)
            await self._app(scope, receive, counted)
            if size > most:
                await anyio.sleep_forever()  # until `stop` ends the call

        transport = httpx2.ASGITransport(app, raise_app_exceptions=False, client=(caller.address, 0))
        with stop:
            async with httpx2.AsyncClient(transport=transport) as client:
                reply = await client.send(request)
            try:
                return ApiReply(reply.status_code, cast("JsonValue", json.loads(reply.content or b"null")))
            except ValueError:  # an error that no handler made an answer of, which the log has
                return ApiReply(500, None)
        return None
