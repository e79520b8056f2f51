"""Send frames as an endless HTTP response: server-sent events, heartbeats and a `bye` frame.

`OpenStreams` counts the open streams of one server and ends them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from math import ceil
from typing import Protocol

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.bus.text import logged
from lanebus.handlers.serve.bounds import UiBounds
from lanebus.handlers.serve.budget import ByteBudget, Share
from lanebus.handlers.serve.errors import TooManyStreams
from lanebus.handlers.serve.frames import HEARTBEAT, Frame, Outlet, encode_frame, encode_retry
from lanebus.handlers.serve.gate import StreamAccess
from lanebus.handlers.serve.guard import owner_of
from lanebus.handlers.serve.http_server import HttpConnection, chunk_of, connection_of
from lanebus.handlers.serve.transfer import PieceSender, cancel_when_gone

# The open event streams of one server: how many a principal has, the sessions they follow, heartbeats, and their ends.
#
# One task serves all streams, because a task for each costs more memory than the rest of a stream.

_log = logging.getLogger(__name__)


class KeptStream(Protocol):
    """An open stream."""

    def check(self, now: float) -> None:
        """End the stream if its right has ended. Send a heartbeat if one is due."""
        ...

    def end(self) -> None:
        """Send the last frame, and end."""
        ...


class OpenStreams:
    """The open streams of one application."""

    def __init__(self, closing: anyio.Event, bounds: UiBounds) -> None:
        """
        Args:
            closing: event that ends all streams.
            bounds: periods and limits.
        """
        self._closing, self._most, self._most_followed = closing, bounds.access.streams, bounds.access.followed
        self._period = min(bounds.access.refresh_seconds, bounds.heartbeat_seconds)
        self._retry_after = ceil(bounds.heartbeat_seconds)  # until then, the server notices most clients that are gone
        self._counts, self._followed = Counter[str](), Counter[str]()
        self._open: dict[KeptStream, None] = {}
        self._keeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check(self, principal: str, followed: int) -> None:
        """Check that a principal may open one more stream.

        Args:
            principal: names the principal and its token.
            followed: number of sessions that the stream would follow.

        Raises:
            TooManyStreams: the principal has `AccessBounds.streams` open streams, or they would follow more than
                `AccessBounds.followed` sessions.
        """
        if self._counts[principal] >= self._most:
            raise TooManyStreams(self._most, self._retry_after)
        if self._followed[principal] + followed > self._most_followed:
            raise TooManyStreams(self._most_followed, self._retry_after, is_of_sessions=True)

    def count(self, principal: str, followed: int) -> None:
        """Count a stream of a principal, until `uncount`. Takes and raises what `check` does."""
        self.check(principal, followed)
        self._counts[principal] += 1
        self._followed[principal] += followed

    def uncount(self, principal: str, followed: int) -> None:
        """Count a stream of a principal no more."""
        for counts, number in ((self._counts, 1), (self._followed, followed)):
            counts[principal] -= number
            if not counts[principal]:
                del counts[principal]

    def keep(self, stream: KeptStream) -> None:
        """Check a stream again and again, until `forget`."""
        # No context managers: for each stream, they would cost more memory than these tables.
        self._open[stream] = None
        if self._closing.is_set():
            stream.end()
        elif self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="lanebus event streams")

    def forget(self, stream: KeptStream) -> None:
        """Check a stream no more."""
        del self._open[stream]
        if not self._open and self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None

    async def _keep(self) -> None:
        while not self._closing.is_set():
            with anyio.move_on_after(self._period):
                await self._closing.wait()
                break
            now = anyio.current_time()
            for stream in tuple(self._open):
                try:
                    stream.check(now)
                except Exception as error:  # noqa: BLE001  # the other streams go on
                    _log.error("an event stream ends, because it could not be checked", exc_info=logged(error))
                    stream.end()
        for stream in tuple(self._open):
            stream.end()


BYE = encode_frame("bye", "{}")

_HEARTBEAT_CHUNK = chunk_of(HEARTBEAT)


class EventStream(Response):
    """Sends server-sent events until the frames end or the server closes, and then a last frame."""

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        frames: Callable[[Share, Outlet], AsyncGenerator[Frame | bytes]],
        *,
        streams: OpenStreams,
        budget: ByteBudget,
        bounds: UiBounds,
        access: StreamAccess,
        followed: int = 1,
        encode: Callable[[Frame], bytes] | None = None,
        first: bytes | None = None,
        last: bytes | None = BYE,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            frames: returns the generator of the frames, which holds its memory in the share. Bytes are sent unchanged.
            streams: the open streams of the server.
            budget: the memory of the server.
            bounds: heartbeat and time limits.
            access: the client's right to the stream, which ends with it.
            followed: number of sessions that the stream follows.
            encode: returns the bytes of a frame when the frame is sent; None means `Frame.whole`.
            first: sent before the first frame; None means the pause of the client before it connects again.
            last: sent at the end. None disconnects the client instead, for protocols without such a frame.
            is_complete: returns whether the frames that were sent are the whole stream. It then ends without `last`.
        """
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._streams, self._budget, self._bounds = frames, streams, budget, bounds
        self._access, self._followed, self._encode = access, followed, encode
        self._first = encode_retry(bounds.retry_seconds) if first is None else first
        self._last, self._is_complete = last, is_complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and return when the stream has ended.

        Raises:
            TooManyStreams: the principal has as many open streams, or follows as many sessions, as it may. Nothing was
                sent.
        """
        self._streams.count(self._access.key, self._followed)
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
            elif (connection := connection_of(scope)) is not None:
                share = self._budget.open(connection.abort, owner=owner_of(scope))
                try:
                    await self._serve(connection, share, send)
                finally:
                    self._budget.close(share)
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
                    async with self._budget.share(tasks.cancel_scope.cancel, owner=owner_of(scope)) as share:
                        await self._serve(None, share, send)
                    tasks.cancel_scope.cancel()
        finally:
            self._streams.uncount(self._access.key, self._followed)

    async def _serve(self, connection: HttpConnection | None, share: Share, send: Send) -> None:
        """Send all frames and the last one, or return when the client of `connection` is gone."""
        is_slow = connection is None or not connection.can_chunk
        sender = PieceSender(send, share, self._bounds, lock=anyio.Lock() if is_slow else None)
        stream = _Stream(connection, sender, self._access, self._encode, self._bounds)
        if connection is not None:
            connection.on_lost = stream.lose
            if connection.is_lost:  # while the access rules were asked
                return
        self._streams.keep(stream)
        try:
            if is_slow or self._access.has_hook:  # each task costs two kilobytes
                async with anyio.create_task_group() as tasks:
                    if is_slow:
                        tasks.start_soon(stream.beat)
                    if self._access.has_hook:
                        tasks.start_soon(stream.wait_refused)
                    await self._send_all(stream, share)
                    tasks.cancel_scope.cancel()
            else:
                await self._send_all(stream, share)
            if not stream.is_lost:
                await self._end(stream, send, share)
        finally:
            self._streams.forget(stream)
            if connection is not None:
                connection.on_lost = None

    async def _send_all(self, stream: "_Stream", share: Share) -> None:
        with stream.scope:
            await stream.sender.send(self._first)
            async with aclosing(self._frames(share, stream)) as frames:
                async for frame in frames:
                    if not self._access.is_open():
                        break
                    await stream.sender.send(self._bytes_of(frame))
                    del frame
        stream.end()

    async def _end(self, stream: "_Stream", send: Send, share: Share) -> None:
        """Send the last frame. If the client does not accept it soon, disconnect the client."""
        last = b"" if self._is_complete() else self._last
        # In the middle of a frame, the last frame would become a part of it.
        if last is not None and not stream.sender.is_within:
            with anyio.move_on_after(self._bounds.last_frame_seconds):
                await send({"type": "http.response.body", "body": last, "more_body": False})
                return
        share.abort()
        await stream.wait_lost()

    def _bytes_of(self, frame: Frame | bytes) -> bytes:
        if isinstance(frame, bytes):
            return frame
        return frame.whole if self._encode is None else self._encode(frame)


class _Stream:
    """One open stream: an `Outlet` for frames that the client accepts at once, and a `KeptStream`."""

    __slots__ = ("_access", "_beats_at", "_connection", "_encode", "_lost", "_pause", "is_lost", "scope", "sender")

    def __init__(
        self,
        connection: HttpConnection | None,
        sender: PieceSender,
        access: StreamAccess,
        encode: Callable[[Frame], bytes] | None,
        bounds: UiBounds,
    ) -> None:
        self.sender, self.scope = sender, anyio.CancelScope()
        self._connection, self._access, self._encode = connection, access, encode
        self._pause = bounds.heartbeat_seconds
        self.is_lost = False
        """whether the client is gone"""
        self._lost: anyio.Event | None = None
        self._beats_at = anyio.current_time() + self._pause

    def is_ready(self) -> bool:
        return (
            self._connection is not None
            and not self.sender.is_within
            and not self.scope.cancel_called
            and self._connection.is_ready()
            and self._access.was_open
        )

    def write(self, frame: Frame) -> None:
        assert self._connection is not None  # noqa: S101  # only for the type checker: `is_ready` was asked
        self._connection.write(frame.chunk if self._encode is None else chunk_of(self._encode(frame)))

    def check(self, now: float) -> None:
        if not self._access.is_open():
            self.end()
        elif now >= self._beats_at:
            self._beats_at = now + self._pause
            # A client that is not ready has data to accept. The server's sweep disconnects it if it accepts none.
            if self._connection is not None and self.is_ready():
                self._connection.write(_HEARTBEAT_CHUNK)

    def end(self) -> None:
        self.scope.cancel()

    def lose(self) -> None:
        """Note that the client is gone."""
        self.is_lost = True
        self.scope.cancel()
        if self._lost is not None:
            self._lost.set()

    async def wait_lost(self) -> None:
        """Wait until the client is gone. Of another server, the cancellation of the response ends the wait."""
        self._lost = anyio.Event()
        if not self.is_lost:
            await self._lost.wait()

    async def beat(self) -> None:
        """Send heartbeats where `write` cannot."""
        while not self.scope.cancel_called:
            await anyio.sleep(self._pause)
            if not self.sender.is_within and not self.scope.cancel_called:
                await self.sender.send(HEARTBEAT)

    async def wait_refused(self) -> None:
        """End the stream when the hook `authorize` refuses it."""
        await self._access.wait_ended()
        self.end()
