"""Send frames as an endless HTTP response: server-sent events, heartbeats and a `bye` frame."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.handlers.ui.bounds import UiBounds
from lanebus.handlers.ui.budget import ByteBudget, Share
from lanebus.handlers.ui.connections import HttpConnection, chunk_of, connection_of
from lanebus.handlers.ui.frames import Frame, Outlet
from lanebus.handlers.ui.gate import StreamAccess
from lanebus.handlers.ui.open_streams import OpenStreams
from lanebus.handlers.ui.paced import PieceSender, cancel_when_gone
from lanebus.handlers.ui.sse import HEARTBEAT, encode_frame, encode_retry

__all__ = ("EventStream",)

_HEARTBEAT_CHUNK = chunk_of(HEARTBEAT)


class EventStream(Response):
    """Sends server-sent events until the frames end or the server closes, and then a `bye` frame."""

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        frames: Callable[[Share, Outlet], AsyncGenerator[Frame]],
        *,
        streams: OpenStreams,
        budget: ByteBudget,
        bounds: UiBounds,
        access: StreamAccess,
        encode: Callable[[Frame], bytes] | None = None,
    ) -> None:
        """
        Args:
            frames: returns the generator of the frames, which holds its memory in the share.
            streams: the open streams of the server.
            budget: the memory of the server.
            bounds: heartbeat and time limits.
            access: the client's right to the stream, which ends with it.
            encode: returns the bytes of a frame when the frame is sent; None means `Frame.whole`.
        """
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._streams, self._budget, self._bounds = frames, streams, budget, bounds
        self._access, self._encode = access, encode

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and return when the stream has ended.

        Raises:
            TooManyStreams: the principal has as many open streams as it may. Nothing was sent.
        """
        with self._streams.counted(self._access.key):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            connection = connection_of(scope)
            async with anyio.create_task_group() as tasks:
                cancel = tasks.cancel_scope.cancel
                if connection is None:
                    tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
                else:
                    connection.on_lost = cancel
                async with self._budget.share(cancel if connection is None else connection.abort) as share:
                    sender = PieceSender(send, share, self._bounds)
                    stream = _Stream(connection, sender, self._access, self._encode, self._bounds)
                    with self._streams.kept(stream):
                        if connection is None or not connection.can_chunk:
                            tasks.start_soon(stream.beat)
                        if self._access.has_hook:
                            tasks.start_soon(stream.wait_refused)
                        await self._send_all(stream, share)
                    await self._end(sender, send, share)
                cancel()
            if connection is not None:
                connection.on_lost = None

    async def _send_all(self, stream: "_Stream", share: Share) -> None:
        with stream.scope:
            await stream.sender.send(encode_retry(self._bounds.retry_seconds))
            async with aclosing(self._frames(share, stream)) as frames:
                async for frame in frames:
                    if not self._access.is_open():
                        break
                    await stream.sender.send(frame.whole if self._encode is None else self._encode(frame))
                    del frame
        stream.end()

    async def _end(self, sender: PieceSender, send: Send, share: Share) -> None:
        """Send the last frame. If the client does not accept it soon, disconnect the client."""
        if not sender.is_within:  # in the middle of a frame, the last frame would become a part of it
            with anyio.move_on_after(self._bounds.last_frame_seconds):
                await send({"type": "http.response.body", "body": encode_frame("bye", "{}"), "more_body": False})
                return
        share.abort()
        await anyio.sleep_forever()  # the disconnection cancels the response


class _Stream:
    """One open stream: an `Outlet` for frames that the client accepts at once, and a `KeptStream`."""

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
