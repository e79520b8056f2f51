"""Read stored entries, receive request bodies and send responses in pieces of bounded size.

So many slow clients together do not hold much of the server's memory.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sized
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Generic, NamedTuple, TypeVar, cast

import anyio
import anyio.lowlevel
from pydantic import JsonValue
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.bus import Session, SessionHead
from lanebus.bus.errors import SessionErased
from lanebus.bus.messages import Lane, parse_json
from lanebus.bus.text import number_in
from lanebus.bus.wire import Cursor, Envelope
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import ByteBudget, Share, Turns
from lanebus.handlers.serve.gate import SessionRight, confirm
from lanebus.handlers.serve.guard import owner_of, require_valid
from lanebus.handlers.serve.http_server import abort_of
from lanebus.handlers.serve.replies import RequestRefused, json_bytes

# Read stored entries in pieces of bounded size, so that many slow clients do not hold many large pages in memory.

Rendered = TypeVar("Rendered", bound=Sized)


class HistoryPiece(NamedTuple, Generic[Rendered]):
    """Rendered entries of a part of the log."""

    rendered: list[Rendered]
    """the entries"""
    cursor: Cursor
    """cursor after the last of them"""


class History:
    """Reads the stored entries of sessions. One object serves all clients of a server."""

    def __init__(self, bounds: UiBounds) -> None:
        self._bounds = bounds
        self.reads = Turns(
            bounds.reads,
            own=max(bounds.reads // 2, 1),
            begun=bounds.reads,
            queued=bounds.queued,
            seconds=bounds.stream_wait_seconds,
        )
        """turns at reading entries"""

    async def pieces(
        self,
        session: Session,
        after: Cursor,
        until: int | None,
        share: Share,
        render: Callable[[Envelope], Rendered],
        *,
        lanes: Collection[Lane] = frozenset(Lane),
        kinds: Collection[str] | None = None,
        seconds: float | None = None,
        right: SessionRight | None = None,
    ) -> AsyncGenerator[HistoryPiece[Rendered]]:
        """Yield the entries after a cursor, in pieces of about `UiBounds.read_bytes`. A piece has at least one entry,
        or only moves the cursor.

        Args:
            session: the session.
            after: the cursor after which to start.
            until: the last position; None reads to the end that the session has now.
            share: holds the bytes of a piece until the next one is requested.
            render: turns an entry into what is sent.
            lanes: the lanes to read.
            kinds: the kinds of messages to read, as for `Session.read`; None means all.
            seconds: longest wait for the memory of a piece; None means `UiBounds.stream_wait_seconds`.
            right: the right to read the session, which is confirmed before each piece; None confirms nothing.

        Raises:
            AccessDenied: `right` has ended.
            ServerBusy: the memory was not free in time, or the turn to read did not come.
            BusError: the errors of `Session.read`.
        """
        head = await session.head()
        if head.is_erased:
            raise SessionErased(session.id)
        seconds = self._bounds.stream_wait_seconds if seconds is None else seconds
        until = head.position if until is None else min(until, head.position)
        count = self._first_count(head)
        while after.position < until:
            await share.take(self.needed(head), seconds=seconds)
            async with self.reads.turn(share.owner):
                piece = await self._read(
                    session, after, min(after.position + count, until), render, lanes=lanes, kinds=kinds
                )
            if piece.cursor.position <= after.position:
                return
            if right is not None:
                await right.confirm()
            sizes = [len(each) for each in piece.rendered]
            count = self._next_count(head, max(sizes, default=0))
            after = piece.cursor
            share.keep(sum(sizes))
            yield piece
            del piece

    def needed(self, head: SessionHead) -> int:
        """Return the bytes to hold for a read: those of the whole session, if it is small."""
        size = head.size_bytes + self._bounds.envelope_bytes * head.position
        return min(size, self._bounds.read_bytes) if _is_whole(head) else self._bounds.read_bytes

    def _first_count(self, head: SessionHead) -> int:
        entries = max(head.position - head.trimmed, 1)
        return self._next_count(head, head.size_bytes // entries)

    def _next_count(self, head: SessionHead, entry_bytes: int) -> int:
        """Return how many positions to read at once, if entries have about `entry_bytes`."""
        is_small = _is_whole(head) and head.size_bytes <= self._bounds.memory_bytes // (2 * self._bounds.reads)
        most = self._bounds.page_entries if is_small else self._bounds.read_entries
        return min(max(self._bounds.read_bytes // max(entry_bytes, 1), 1), most)

    async def _read(
        self,
        session: Session,
        after: Cursor,
        until: int,
        render: Callable[[Envelope], Rendered],
        *,
        lanes: Collection[Lane],
        kinds: Collection[str] | None,
    ) -> HistoryPiece[Rendered]:
        rendered, size = list[Rendered](), 0
        async with aclosing(session.pages(lanes=lanes, kinds=kinds, after=after, until=until)) as pages:
            async for page in pages:
                for envelope in page.envelopes:
                    # Rendered at once: decoded entries may take many times the memory of their text.
                    one = render(envelope)
                    if rendered and size + len(one) > self._bounds.read_bytes:
                        return HistoryPiece(rendered, after)
                    rendered.append(one)
                    size, after = size + len(one), envelope.cursor
                after = page.cursor
        return HistoryPiece(rendered, after)


def _is_whole(head: SessionHead) -> bool:
    """Return whether the head counts all entries: not those that a fork shares with its parent, nor archived ones."""
    return head.origin is None and head.trimmed == 0


# Send responses in small pieces, as fast as the client accepts them, and hold little of them in memory meanwhile.

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


# Read request bodies: only JSON, and never more than the limit is kept in memory.

_SHARE = "lanebus.body"


async def read_json(request: Request, budget: ByteBudget, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> JsonValue:
    """Read the body as JSON; see `read_body`.

    The content type must be JSON. This stops forms on other sites, because an HTML form cannot send this type.

    Raises:
        RequestRefused: 415 if the content type is not `application/json`; else as for `read_body`.
        DecodeError: the body is not JSON that the bus accepts.
        ServerBusy: the memory was not free in time.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RequestRefused(415, "json_only", "send JSON, with the header Content-Type: application/json")
    return parse_json(await read_body(request, budget, bounds))


async def read_body(request: Request, budget: ByteBudget, bounds: UiBounds = DEFAULT_UI_BOUNDS) -> bytes:
    """Read the body chunk by chunk, at most `bounds.body_bytes`. Its memory is held until `give_back`.

    Nothing is read before there is memory for the announced length, or for the longest body if none is announced.

    Raises:
        RequestRefused: 413 if the body is larger than the limit; 408 if it takes longer than `bounds.body_seconds`, or
            stops while other requests wait for memory; 401 if the token has ended meanwhile; 400 as for
            `announced_bytes`.
        ServerBusy: the memory was not free in time.
    """
    announced = announced_bytes(request, unknown=bounds.body_bytes)
    if announced > bounds.body_bytes:
        raise body_too_large(bounds.body_bytes, will_end=announced <= bounds.dropped_bytes)
    async with holding(request, budget, announced, bounds) as (share, timeout):
        body = bytearray()
        async for chunk in request.stream():
            share.blocked_at = anyio.current_time()
            body += chunk
            if len(body) > bounds.body_bytes:
                raise body_too_large(bounds.body_bytes, will_end=False)
    if timeout.cancelled_caught:
        raise body_too_slow(bounds.body_seconds)
    require_valid(request.scope)
    share.keep(len(body) if len(body) > bounds.small_bytes else 0)
    return bytes(body)


@asynccontextmanager
async def holding(
    request: Request, budget: ByteBudget, size: int, bounds: UiBounds
) -> AsyncGenerator[tuple[Share, anyio.CancelScope]]:
    """Hold memory for a request's body, until `give_back`, and bound the time in which the block reads it.

    Args:
        request: the request.
        budget: the memory of the server.
        size: bytes to hold; none are held up to `UiBounds.small_bytes`.
        bounds: sizes and time limits.

    Raises:
        ServerBusy: the memory was not free in time.
    """
    timeout = anyio.CancelScope()
    request.scope[_SHARE] = share = budget.open(timeout.cancel, owner=owner_of(request.scope))
    if size > bounds.small_bytes:
        await share.take(size, seconds=bounds.wait_seconds)
    timeout.deadline = anyio.current_time() + bounds.body_seconds
    with timeout:
        share.blocked_at = anyio.current_time()
        try:
            yield share, timeout
        except ClientDisconnect:
            timeout.cancel()
            await anyio.lowlevel.checkpoint()
        finally:
            share.blocked_at = None


def give_back(scope: Scope) -> None:
    """Give back the memory of a request's body, when the request was handled."""
    if (share := cast("Share | None", scope.pop(_SHARE, None))) is not None:
        share.close()


def announced_bytes(request: Request, *, unknown: int = 0) -> int:
    """Return the size of the body by the header `Content-Length`; `unknown` if there is no such header.

    Raises:
        RequestRefused: 400 if the header is no number. Other servers than lanebus's own may let such a header pass.
    """
    header = request.headers.get("content-length")
    found = unknown if header is None else number_in(header)
    if found is None:
        raise RequestRefused(400, "invalid_length", "the header Content-Length must be the size of the body in bytes")
    return found


def body_too_slow(seconds: float) -> RequestRefused:
    """Return the error of a body that did not arrive within so many seconds. The connection is closed."""
    fault = f"the body did not arrive within {seconds:g} s: send it again"
    return RequestRefused(408, "body_too_slow", fault, headers={"Connection": "close"})


def body_too_large(limit_bytes: int, *, will_end: bool) -> RequestRefused:
    """Return the error of a body over the limit.

    Args:
        limit_bytes: maximum number of bytes.
        will_end: whether the rest of the body is read and dropped. Otherwise the connection is closed.
    """
    # If the connection is kept open, the server reads and drops the rest of the body, forever if the body has no end.
    # Closing the connection avoids this, but a client that is still sending may then miss the response. So a body of
    # known, moderate size is read to its end.
    fault = f"the body has more than {limit_bytes} bytes, which this request may have"
    return RequestRefused(413, "body_too_large", fault, headers=None if will_end else {"Connection": "close"})
