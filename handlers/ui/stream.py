"""A session as an endless HTTP answer: history, what comes, heartbeats, and a farewell."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
from pydantic import JsonValue
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.messages.delta import Delta
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import Cursor, Envelope
from lanebus.bus.wire.notice import Notice
from lanebus.handlers.ui.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.ui.replies import envelope_json
from lanebus.handlers.ui.sse import HEARTBEAT, encode_frame, encode_retry

__all__ = ("EventStream", "session_frames")


async def session_frames(
    session: Session, after: Cursor, retry_seconds: float = DEFAULT_UI_BOUNDS.retry
) -> AsyncGenerator[bytes]:
    """The frames of one subscriber: both lanes and the live deltas after a cursor, each with its cursor as id. The
    first has the client wait `retry_seconds` before it connects again.

    entry        an envelope of a lane
    delta        a live delta, below the newest position; with `isSnapshot` all that was said of its block up to the
                 cursor, which takes the place of what the client has of it
    gap          entries after the cursor were trimmed: `firstKept` is the next that there is, and follows
    caughtup     all that was there has been told; what follows is new
    fellbehind   the client was slow, and what comes next is read from the log again: nothing is lost
    closed       the session takes no more messages, and has been told up to its end; the stream stays
    reopened     it takes messages again
    rolledback   the log lost its end: what the client has seen behind position `found` may not exist, and it starts
                 anew, or drops that and goes on behind this frame's id; the stream ends
    failed       the bus cannot say more for now; the client comes back
    """
    yield encode_retry(retry_seconds)
    while True:
        try:
            async with aclosing(session.subscribe(after=after, live=True)) as items:
                async for item in items:
                    after = item.cursor
                    match item:
                        case Notice():
                            yield _frame(item.kind.lower(), {"session": session.id}, id=str(after))
                        case Envelope(message=Delta()):
                            yield encode_frame("delta", envelope_json(item), id=str(after))
                        case Envelope():
                            name = "delta" if item.delta else "entry"
                            yield encode_frame(name, envelope_json(item), id=str(after))
        except CursorTrimmed as gap:
            # Any status but 200 would make a browser give up for good, so the gap is told inside the stream.
            missing: JsonValue = {"session": session.id, "after": str(after), "firstKept": gap.first_kept}
            after = await _cursor_at(session, max(gap.first_kept - 1, after.position))
            yield _frame("gap", missing, id=str(after))
            continue
        except LogRolledBack as lost:
            told: JsonValue = {"session": session.id, "seen": lost.seen, "found": lost.found}
            yield _frame("rolledback", told, id=str(await _cursor_at(session, lost.found)))
        except BusError as error:
            yield _frame("failed", {"session": session.id, "message": str(error)})
        return


async def _cursor_at(session: Session, position: int) -> Cursor:
    """The cursor of a reader that has seen all up to a position of the log as it is now.

    It names no incarnation, and is believed, where the server cannot be asked or the head does not know any more.
    """
    try:
        return (await session.head()).cursor_at(position)
    except BusError:
        return Cursor(position)


class EventStream(Response):
    """Server-sent events until the frames end, the client goes, or the server closes; then a `bye` frame."""

    media_type = "text/event-stream"
    charset = "utf-8"

    def __init__(
        self,
        frames: Callable[[], AsyncGenerator[bytes]],
        *,
        closing: anyio.Event,
        bounds: UiBounds = DEFAULT_UI_BOUNDS,
    ) -> None:
        """`closing` is set when the server is to end; open streams then end by themselves."""
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames, self._closing, self._bounds = frames, closing, bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            with anyio.CancelScope() as speaking:
                tasks.start_soon(_cancel_when_set, self._closing, speaking)
                tasks.start_soon(self._beat, send, speaking)
                async with aclosing(self._frames()) as frames:
                    async for frame in frames:
                        if not await self._send_or_give_up(send, frame, speaking):
                            break
            with anyio.move_on_after(self._bounds.farewell):
                await send({"type": "http.response.body", "body": _frame("bye", {}), "more_body": False})
            tasks.cancel_scope.cancel()

    async def _send_or_give_up(self, send: Send, frame: bytes, speaking: anyio.CancelScope) -> bool:
        with anyio.move_on_after(self._bounds.send) as patience:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        if patience.cancelled_caught:
            speaking.cancel()
        return not patience.cancelled_caught

    async def _beat(self, send: Send, speaking: anyio.CancelScope) -> None:
        while not speaking.cancel_called:
            await anyio.sleep(self._bounds.heartbeat)
            await self._send_or_give_up(send, HEARTBEAT, speaking)


async def _cancel_when_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _cancel_when_set(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _frame(event: str, data: JsonValue, *, id: str | None = None) -> bytes:
    return encode_frame(event, json.dumps(data), id=id)
