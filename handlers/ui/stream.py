"""Stream a session as an endless HTTP response: history, new entries, heartbeats and a `bye` frame."""

import json
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing

import anyio
from pydantic import JsonValue
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.bus.error_text import without_secrets
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.reading import ALL_LANES
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.budget import ByteBudget, Share
from lanebus.handlers.ui.connections import abort_of
from lanebus.handlers.ui.gate import StreamAccess
from lanebus.handlers.ui.history import History
from lanebus.handlers.ui.paced import PieceSender, cancel_when_gone
from lanebus.handlers.ui.replies import envelope_json
from lanebus.handlers.ui.sse import HEARTBEAT, encode_frame, encode_retry

__all__ = ("BYE", "EventStream", "session_frames")


async def session_frames(
    session: Session,
    after: Cursor,
    share: Share,
    history: History,
    *,
    lanes: Collection[Lane] = ALL_LANES,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> AsyncGenerator[bytes]:
    """Yield the frames of one subscriber: both lanes and live deltas after a cursor. The id of a frame is its cursor.

    entry        an envelope of a lane
    delta        a live delta: a piece of the message that a model is writing. With `isSnapshot`, it holds all text of
                 its block up to this frame's cursor, and replaces what the client has of the block.
    gap          entries after the cursor were trimmed. `firstKept` is the position of the next entry, which follows.
    caughtup     all stored entries were sent; new entries follow
    fellbehind   the client was slow and is switched back to reading the log; nothing is lost
    closed       the session accepts no more messages, and all its entries were sent; the stream stays open
    reopened     the session accepts messages again
    rolledback   the log lost its last entries: those after position `found` may not exist any more. The stream ends.
                 The client starts again, or drops these entries and continues after this frame's id.
    failed       the bus failed. The stream ends, and the client reconnects.

    Args:
        session: the session.
        after: the cursor after which to start.
        share: holds the memory of the frames that were read and not sent.
        history: reads the stored entries.
        lanes: lanes to send. Live deltas belong to the LLM lane.
        bounds: sizes, and the pause of the client before it reconnects, which is part of the first frame.
    """
    yield encode_retry(bounds.retry_seconds)
    while True:
        try:
            stored = history.pieces(session, after, None, share, _entry_frame, lanes=lanes)
            async with aclosing(stored) as pieces:
                async for rendered, cursor in pieces:
                    rendered.reverse()
                    while rendered:
                        yield rendered.pop()  # nothing keeps a frame that was sent
                    after = cursor
            share.keep(0)
            async with aclosing(session.subscribe(lanes=lanes, after=after, live=Lane.LLM in lanes)) as items:
                async for item in items:
                    after = item.cursor
                    frame = _frame_of(item, session.id)
                    if (size := len(frame)) > bounds.small_bytes and not share.take_nowait(size):
                        del frame
                        await share.take(size)
                        frame = _frame_of(item, session.id)
                    yield frame
                    del frame
                    share.keep(0)
                    if isinstance(item, Notice) and item.kind == "fellBehind":
                        break  # read the stored entries again, in small pieces
                else:
                    return
        except CursorTrimmed as gap:
            # A frame and not an HTTP status: on any status but 200, browsers do not reconnect.
            missing: JsonValue = {"session": session.id, "after": str(after), "firstKept": gap.first_kept}
            after = await _cursor_at(session, max(gap.first_kept - 1, after.position))
            yield _frame("gap", missing, id=str(after))
        except LogRolledBack as lost:
            rollback: JsonValue = {"session": session.id, "seen": lost.seen, "found": lost.found}
            yield _frame("rolledback", rollback, id=str(await _cursor_at(session, lost.found)))
            return
        except BusError as error:
            yield _frame("failed", {"session": session.id, "message": without_secrets(str(error))})
            return


def _frame_of(item: Envelope | Notice, session: str) -> bytes:
    match item:
        case Notice():
            return _frame(item.kind.lower(), {"session": session}, id=str(item.cursor))
        case Envelope(message=Delta()):
            return encode_frame("delta", envelope_json(item), id=str(item.cursor))
        case Envelope():
            return _entry_frame(item)


def _entry_frame(envelope: Envelope) -> bytes:
    # A foreign client may have written an id such as 7-5 into a lane.
    return encode_frame("delta" if envelope.delta else "entry", envelope_json(envelope), id=str(envelope.cursor))


async def _cursor_at(session: Session, position: int) -> Cursor:
    """Return the cursor after a position of the present log.

    The cursor names no incarnation if the server does not answer, or if the head no longer knows the incarnation of
    `position`. Readers accept such a cursor unchecked.
    """
    try:
        return (await session.head()).cursor_at(position)
    except BusError:
        return Cursor(position)


BYE = encode_frame("bye", "{}")


class EventStream(Response):
    """Sends server-sent events until the frames end or the server closes, and then a last frame."""

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        frames: Callable[[Share], AsyncGenerator[bytes]],
        *,
        closing: anyio.Event,
        budget: ByteBudget,
        bounds: UiBounds = DEFAULT_UI_BOUNDS,
        access: StreamAccess | None = None,
        last_frame: bytes | None = BYE,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            frames: returns the generator of the frames, which holds its memory in the share.
            closing: event that the server sets to end its open streams.
            budget: the memory of the server.
            bounds: heartbeat and time limits.
            access: the client's right to the stream, which ends with it; None means that the right does not end.
            last_frame: sent at the end. None disconnects the client instead, for protocols without such a frame.
            is_complete: returns whether the frames that were sent are the whole stream. It then ends without
                `last_frame`.
        """
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._closing, self._budget, self._bounds = frames, closing, budget, bounds
        self._access, self._last_frame, self._is_complete = access, last_frame, is_complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and return when the stream has ended."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when_gone, receive, tasks.cancel_scope)
            abort = abort_of(scope, tasks.cancel_scope.cancel)
            async with self._budget.share(abort) as share:
                sender = PieceSender(send, share, self._bounds)
                with anyio.CancelScope() as sending:
                    tasks.start_soon(_cancel_when_set, self._closing, sending)
                    tasks.start_soon(self._beat, sender, sending)
                    tasks.start_soon(self._cancel_when_refused, sending)
                    async with aclosing(self._frames(share)) as frames:
                        async for frame in frames:
                            if self._access is not None and not self._access.is_open():
                                break
                            await sender.send(frame)
                            del frame
                sending.cancel()
                await self._end(sender, send, share)
            tasks.cancel_scope.cancel()

    async def _cancel_when_refused(self, sending: anyio.CancelScope) -> None:
        if self._access is not None:
            await self._access.wait_ended()
            sending.cancel()

    async def _end(self, sender: PieceSender, send: Send, share: Share) -> None:
        """Send the last frame. If the client does not accept it soon, disconnect the client."""
        frame = b"" if self._is_complete() else self._last_frame
        # In the middle of a frame, the last frame would become a part of it.
        if frame is not None and not sender.is_within:
            with anyio.move_on_after(self._bounds.last_frame_seconds):
                await send({"type": "http.response.body", "body": frame, "more_body": False})
                return
        share.abort()
        await anyio.sleep_forever()  # the disconnection cancels the response

    async def _beat(self, sender: PieceSender, sending: anyio.CancelScope) -> None:
        while not sending.cancel_called:
            await anyio.sleep(self._bounds.heartbeat_seconds)
            if not sender.is_within and not sending.cancel_called:
                await sender.send(HEARTBEAT)


async def _cancel_when_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _frame(event: str, data: JsonValue, *, id: str | None = None) -> bytes:
    return encode_frame(event, json.dumps(data), id=id)
