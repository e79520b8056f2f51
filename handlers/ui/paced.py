"""Send responses in small pieces, as fast as the client accepts them, and hold little of them in memory meanwhile."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from typing import cast

import anyio
import anyio.lowlevel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.handlers.ui.auth import owner_of
from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import ByteBudget, Share
from lanebus.handlers.ui.connections import abort_of
from lanebus.handlers.ui.gate import confirm
from lanebus.handlers.ui.replies import json_bytes

__all__ = ("PacedAnswer", "PacedFile", "PacedResponse", "PacedWhole", "PieceSender", "cancel_when_gone", "paid_by")

_PAID = "lanebus.paid"


def paid_by(scope: Scope, share: Share) -> None:
    """Let the response to a request within the process take no memory of its own: the share holds it already."""
    scope[_PAID] = share


class PieceSender:
    """Sends the body of one response in pieces of `UiBounds.piece_bytes`."""

    __slots__ = ("_bounds", "_lock", "_send", "_share", "is_within")

    def __init__(self, send: Send, share: Share, bounds: UiBounds, *, lock: anyio.Lock | None = None) -> None:
        """
        Args:
            send: sends a part of the body.
            share: notes since when the client accepts nothing.
            bounds: sizes and time limits.
            lock: held during `send`, if several tasks send; None if only one does.
        """
        self._send, self._share, self._bounds, self._lock = send, share, bounds, lock
        self.is_within = False
        """whether only a part of the bytes of the last `send` was sent"""

    async def send(self, data: bytes) -> None:
        """Send bytes. If the client accepts no piece for `UiBounds.send_seconds`, disconnect it."""
        async with self._lock or nullcontext():
            await anyio.lowlevel.checkpoint()  # a fast client would keep the other tasks waiting
            self.is_within = True
            for start in range(0, len(data), self._bounds.piece_bytes):
                self._share.blocked_at = anyio.current_time()
                with anyio.move_on_after(self._bounds.send_seconds) as timeout:
                    piece = data[start : start + self._bounds.piece_bytes]
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})
                if timeout.cancelled_caught:
                    self._share.abort()
                    await anyio.sleep_forever()  # the disconnection cancels the response
            self._share.blocked_at = None
            self.is_within = False


class PacedResponse(Response):
    """A response whose body is made while it is sent. Errors of the first part become an error response."""

    media_type = "application/json"

    def __init__(
        self,
        body: Callable[[Share], AsyncGenerator[bytes]],
        *,
        closing: anyio.Event,
        budget: ByteBudget,
        bounds: UiBounds,
    ) -> None:
        """
        Args:
            body: returns the generator of the body, which holds its memory in the share.
            closing: event that the server sets when it ends. A client that is still reading then has a short time.
            budget: the memory of the server.
            bounds: sizes and time limits.
        """
        super().__init__()
        del self.headers["content-length"]
        self._parts, self._closing, self._budget, self._bounds = body, closing, budget, bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and return when the body has ended or the client is gone."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
            abort = abort_of(scope, tasks.cancel_scope.cancel)
            paid = cast("Share | None", scope.get(_PAID))
            opened = self._budget.share(abort, owner=owner_of(scope)) if paid is None else nullcontext(paid.paid())
            async with opened as share, aclosing(self._parts(share)) as parts:
                tasks.start_soon(self._abort_in_the_end, share)
                try:
                    first = await anext(parts)
                    await confirm(scope)
                except Exception as error:  # noqa: BLE001  # raised again below, outside of the task group
                    failure = error
                else:
                    await self._send_all(first, parts, PieceSender(send, share, self._bounds), send)
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _abort_in_the_end(self, share: Share) -> None:
        await self._closing.wait()
        await anyio.sleep(self._bounds.last_frame_seconds)
        share.abort()

    async def _send_all(self, first: bytes, parts: AsyncGenerator[bytes], sender: PieceSender, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await sender.send(first)
        del first
        async for part in parts:
            await sender.send(part)
            del part  # it is no longer counted while the next one is awaited
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class PacedAnswer(PacedResponse):
    """A JSON response that is made again when there is memory for it, instead of waiting in memory."""

    def __init__(
        self,
        value: Callable[[Share], Awaitable[object]],
        *,
        closing: anyio.Event,
        budget: ByteBudget,
        bounds: UiBounds,
    ) -> None:
        """
        Args:
            value: returns the value that is sent as JSON, or its JSON as bytes, given the share of the response. It is
                called once more if the JSON is large.
            closing: event that the server sets when it ends. A client that is still reading then has a short time.
            budget: the memory of the server.
            bounds: sizes and time limits.
        """
        super().__init__(self._render, closing=closing, budget=budget, bounds=bounds)
        self._value = value

    async def _render(self, share: Share) -> AsyncGenerator[bytes]:
        text = _rendered(await self._value(share))
        if (size := len(text)) > self._bounds.small_bytes and not share.take_nowait(size):
            del text
            await share.take(size, seconds=self._bounds.wait_seconds)
            text = _rendered(await self._value(share))
            share.keep(len(text))
        yield text


def _rendered(value: object) -> bytes:
    return value if isinstance(value, bytes) else json_bytes(value)


class PacedWhole(PacedResponse):
    """Sends a response of known status and headers, which is made once there is memory for it."""

    def __init__(
        self,
        make: Callable[[Share], Awaitable[Response]],
        *,
        closing: anyio.Event,
        budget: ByteBudget,
        bounds: UiBounds,
    ) -> None:
        """
        Args:
            make: returns the response, whose body the share holds.
            closing: event that the server sets when it ends.
            budget: the memory of the server.
            bounds: sizes and time limits.
        """
        super().__init__(self._body, closing=closing, budget=budget, bounds=bounds)
        self._make = make

    async def _body(self, share: Share) -> AsyncGenerator[bytes]:
        made = await self._make(share)
        self.status_code, self.raw_headers = made.status_code, made.raw_headers
        body = bytes(made.body)
        del made
        share.keep(len(body))
        yield body


class PacedFile(Response):
    """Sends bytes that the server keeps anyway, in pieces, so that a client that does not read costs one piece."""

    def __init__(self, content: bytes, headers: Mapping[str, str], *, budget: ByteBudget, bounds: UiBounds) -> None:
        """
        Args:
            content: the bytes.
            headers: headers of the response.
            budget: the memory of the server.
            bounds: sizes and time limits.
        """
        super().__init__(content, headers=headers)
        self._budget, self._bounds = budget, bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and return when it was sent or the client is gone."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
            abort = abort_of(scope, tasks.cancel_scope.cancel)
            async with self._budget.share(abort, owner=owner_of(scope)) as share:
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await PieceSender(send, share, self._bounds).send(bytes(self.body))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()


async def cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    """Cancel a scope when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
