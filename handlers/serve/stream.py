"""Event streams: the frames of a session for one subscriber, sent as an endless HTTP response with heartbeats.

`session_frames` makes the frames of lanebus's own event stream, `run_frames` feeds an encoder of another protocol.

`OpenStreams` counts the open streams of one server and ends them.
"""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from math import ceil
from typing import Protocol

import anyio
from pydantic import JsonValue
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lanebus.bus import ALL_LANES, Session
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.messages import Delta, Lane
from lanebus.bus.text import logged, without_secrets
from lanebus.bus.wire import START, Cursor, DecodeFailure, Envelope, Notice, Selection
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import ByteBudget, Share
from lanebus.handlers.serve.errors import TooManyStreams
from lanebus.handlers.serve.gate import SessionRight, StreamAccess
from lanebus.handlers.serve.guard import owner_of
from lanebus.handlers.serve.http_server import HttpConnection, chunk_of, connection_of
from lanebus.handlers.serve.replies import AccessDenied, envelope_json, name_of, status_of
from lanebus.handlers.serve.transfer import History, PieceSender, cancel_when_gone

# A frame of a new entry is encoded once, and shared by all subscribers of the process.


class Frame:
    """One event of a session. Subscribers share the object, and the bytes of its HTTP chunk."""

    __slots__ = ("_chunk", "cursor", "event", "lines", "session")

    def __init__(self, session: str, event: str, json_text: str, cursor: Cursor | None) -> None:
        """
        Args:
            session: id of the session.
            event: the event's name; "" for a frame with nothing but the cursor, which clients report as no event.
            json_text: its data.
            cursor: the place of a client that has received the frame; None if the frame does not move it.
        """
        self.session, self.event, self.cursor = session, event, cursor
        self.lines = encode_lines(event, json_text) if event else b""
        self._chunk = b""

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def whole(self) -> bytes:
        """The frame on the stream of one session. Its id is the cursor."""
        return self.lines + encode_end(None if self.cursor is None else str(self.cursor))

    @property
    def named_lines(self) -> bytes:
        """`lines`, whose data begins with the session's id. The frames of notices have the id anyway."""
        if self.event not in {"entry", "delta"}:
            return self.lines
        return self.lines.replace(b"data: {", b'data: {"session":"%b",' % self.session.encode("ascii"), 1)

    @property
    def chunk(self) -> bytes:
        """`whole` as an HTTP chunk, made once."""
        if not self._chunk:
            self._chunk = chunk_of(self.whole)
        return self._chunk


class Outlet(Protocol):
    """Where the frames of a subscriber go."""

    def is_ready(self) -> bool:
        """Return whether `write` may be called now: the client accepts data, and may still read."""
        ...

    def write(self, frame: Frame) -> None:
        """Hand a frame over at once. The caller has just asked `is_ready`."""
        ...


class SharedFrames:
    """The frames of the newest entries and deltas. One object serves all subscribers of a server."""

    def __init__(self, limit_bytes: int) -> None:
        """Keep frames of at most `limit_bytes` in total; the oldest is dropped first."""
        self._limit, self._held = limit_bytes, 0
        self._frames: dict[int, tuple[Envelope, Frame]] = {}

    @property
    def held(self) -> int:
        """Bytes of the frames that are kept."""
        return self._held

    def of(self, session: str, item: Envelope | Notice) -> Frame:
        """Return the frame of an envelope or a notice. The hub passes the same envelope to all subscriptions."""
        if isinstance(item, Notice):
            return _frame(session, item.kind.lower(), {"session": session}, item.cursor)
        found = self._frames.get(id(item))  # an envelope that is kept is alive, so no other one has its id
        if found is not None:
            return found[1]
        frame = _envelope_frame(item)
        self._frames[id(item)] = item, frame
        self._held += len(frame)
        while self._held > self._limit:
            self._held -= len(self._frames.pop(next(iter(self._frames)))[1])
        return frame


class _Direct:
    """Writes new items to the client in the hub's task, while the subscriber's own task waits."""

    __slots__ = ("_most", "_outlet", "_right", "_session", "_shared", "cursor")

    def __init__(
        self, session: str, outlet: Outlet, shared: SharedFrames, most: int, right: SessionRight | None
    ) -> None:
        self._session, self._outlet, self._shared, self._most, self._right = session, outlet, shared, most, right
        self.cursor = START
        """cursor of the last item that was written"""

    def can_receive(self, item: Envelope | Notice) -> bool:
        if self._right is not None and not self._right.is_current:
            return False  # the subscriber's own task asks for the right again
        return self._outlet.is_ready() and len(self._shared.of(self._session, item)) <= self._most

    def receive(self, item: Envelope | Notice) -> None:
        self.cursor = item.cursor
        self._outlet.write(self._shared.of(self._session, item))


async def session_frames(
    session: Session,
    after: Cursor,
    share: Share,
    history: History,
    *,
    outlet: Outlet | None = None,
    shared: SharedFrames | None = None,
    lanes: Collection[Lane] = ALL_LANES,
    kinds: Collection[str] | None = None,
    live: bool = True,
    right: SessionRight | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> AsyncGenerator[Frame]:
    """Yield the frames of one subscriber: entries and live deltas after a cursor. The id of a frame is its cursor.

    If `kinds` leaves entries out, a frame with nothing but an id moves the client's cursor past them now and then, so
    that a client that resumes does not wait for all of them to be read again.

    New frames that the client accepts at once go to `outlet` instead, while the caller waits for the next frame.

    entry        an envelope of a lane
    delta        a live delta: a piece of the message that a model is writing. With `isSnapshot`, it holds all text of
                 its block up to this frame's cursor, and replaces what the client has of the block.
    gap          entries after the cursor were trimmed or are missing. `firstKept` is the position of the next entry,
                 which follows.
    caughtup     all stored entries were sent; new entries follow
    fellbehind   the client was slow and is switched back to reading the log; nothing is lost
    closed       the session accepts no more messages, and all its entries were sent; the stream stays open
    reopened     the session accepts messages again
    rolledback   the log lost its last entries: those after position `found` may not exist any more. The stream ends.
                 The client starts again, or drops these entries and continues after this frame's id.
    failed       the bus failed, or the client lost the right to the session. The stream ends, and the client
                 reconnects. `status` and `error` are those that a request would get: on a status of 400 to 499, such as
                 that of an erased session or of a lost right, it need not.

    Args:
        session: the session.
        after: the cursor after which to start.
        share: holds the memory of the frames that were read and not sent.
        history: reads the stored entries.
        outlet: where new frames go, if they can be written at once; None means that all are yielded.
        shared: the frames that subscribers share; None shares none.
        lanes: lanes to send.
        kinds: kinds of messages to send, as for `Session.read`; None means all. Live deltas are of every kind.
        live: whether to send live deltas. They belong to the LLM lane.
        right: the subscriber's right to the session. If it ends, the last frame is `failed`, with the status 403. None
            means that it cannot end before the stream does.
        bounds: sizes.
    """
    shared = shared or SharedFrames(0)
    selection, live = Selection.of(lanes, kinds), live and Lane.LLM in lanes
    if kinds is not None:
        outlet = None  # the subscriber's own task leaves entries out
    while True:
        most = min(bounds.small_bytes, bounds.piece_bytes)
        direct = None if outlet is None else _Direct(session.id, outlet, shared, most, right)
        try:
            stored = history.pieces(session, after, None, share, _envelope_frame, lanes=lanes, kinds=kinds, right=right)
            async with aclosing(stored) as pieces:
                async for rendered, cursor in pieces:
                    if kinds is not None and not rendered:
                        yield _moved(session.id, cursor)
                    rendered.reverse()
                    while rendered:
                        yield rendered.pop()  # nothing keeps a frame that was sent
                    after = cursor
            share.keep(0)
            skipped = 0
            # Without `kinds`: a subscription that leaves entries out does not say how far it has read.
            items = session.subscribe(lanes=lanes, after=after, live=live, direct=direct)
            async with aclosing(items if right is None else right.guarded(items)) as found:
                async for item in found:
                    after = item.cursor
                    if isinstance(item, Envelope) and not item.delta and not selection.takes(item):
                        skipped += 1
                        if skipped % bounds.skipped_entries == 0:
                            yield _moved(session.id, after)
                        continue
                    frame = shared.of(session.id, item)
                    if (size := len(frame)) > bounds.small_bytes and not share.take_nowait(size):
                        del frame
                        await share.take(size, seconds=bounds.stream_wait_seconds)
                        frame = shared.of(session.id, item)
                    yield frame
                    del frame
                    share.keep(0)
                    if isinstance(item, Notice) and item.kind == "fellBehind":
                        break  # read the stored entries again, in small pieces
                else:
                    return
        except CursorTrimmed as gap:
            # A frame and not an HTTP status: on any status but 200, browsers do not reconnect.
            seen = max(after, direct.cursor, key=_place) if direct is not None else after
            missing: JsonValue = {"session": session.id, "after": str(seen), "firstKept": gap.first_kept}
            after = await _cursor_at(session, max(gap.first_kept - 1, seen.position))
            yield _frame(session.id, "gap", missing, after)
        except LogRolledBack as lost:
            rollback: JsonValue = {"session": session.id, "seen": lost.seen, "found": lost.found}
            yield _frame(session.id, "rolledback", rollback, await _cursor_at(session, lost.found))
            return
        except AccessDenied as refused:
            yield failed_frame(session.id, refused.status_code, refused.error, refused.message)
            return
        except BusError as error:
            yield failed_frame(session.id, status_of(error), name_of(error), without_secrets(str(error)))
            return


def failed_frame(session: str, status: int, error: str, message: str) -> Frame:
    """Return the last frame of a session that cannot be sent any more, with the fields of an error response."""
    return _frame(session, "failed", {"session": session, "status": status, "error": error, "message": message}, None)


def _place(cursor: Cursor) -> tuple[int, int]:
    return cursor.position, cursor.delta


def _envelope_frame(envelope: Envelope) -> Frame:
    # A foreign client may have written an id such as 7-5 into a lane.
    is_delta = envelope.delta or isinstance(envelope.message, Delta)
    return Frame(envelope.session, "delta" if is_delta else "entry", envelope_json(envelope), envelope.cursor)


def _moved(session: str, cursor: Cursor) -> Frame:
    return Frame(session, "", "", cursor)


def _frame(session: str, event: str, data: JsonValue, cursor: Cursor | None) -> Frame:
    return Frame(session, event, json.dumps(data), cursor)


async def _cursor_at(session: Session, position: int) -> Cursor:
    """Return the cursor after a position of the present log.

    The cursor names no incarnation if the server does not answer, or if the head no longer knows the incarnation of
    `position`. Readers accept such a cursor unchecked.
    """
    try:
        return (await session.head()).cursor_at(position)
    except BusError:
        return Cursor(position)


# Feed a session's entries and live deltas to an encoder of another protocol, until its stream is complete.


class Correction(Protocol):
    """Makes frames that replace what a client shows, from the stored entries."""

    def add(self, envelope: Envelope, /) -> bytes:
        """Read an entry. Return b"". The last entry may be repeated."""
        ...

    def caught_up(self) -> bytes:
        """Return the frames."""
        ...


class RunFrames(Protocol):
    """Encodes a run as the frames of a stream."""

    @property
    def is_done(self) -> bool:
        """Whether all frames were returned."""
        ...

    @property
    def held(self) -> int:
        """Bytes of frames that are kept once the stored entries were read."""
        ...

    def add(self, envelope: Envelope, /) -> bytes:
        """Return the frames of an entry or a live delta; b"" if there are none. The last entry may be repeated."""
        ...

    def caught_up(self, position: int, /) -> bytes:
        """Return frames that follow when all stored entries and live deltas so far were added; b"" if there are none.

        It may be called again, if the reader was too slow and caught up again.
        """
        ...

    def correction(self) -> "Correction | None":
        """Return what the stored entries are to be read into again; None if that is not necessary."""
        ...

    def fail(self, text: str, /) -> bytes:
        """Return the last frames of a stream that cannot go on. People see the text."""
        ...


async def run_frames(
    session: Session,
    first: int,
    share: Share,
    history: History,
    frames: RunFrames,
    *,
    right: SessionRight | None = None,
    bounds: UiBounds = DEFAULT_UI_BOUNDS,
) -> AsyncGenerator[bytes]:
    """Yield the frames of a run, from both lanes and the live deltas.

    Args:
        session: the session.
        first: position of the first entry to read.
        share: holds the memory of the frames that were read and not sent.
        history: reads the stored entries.
        frames: encodes the entries.
        right: the client's right to the session, as for `session_frames`.
        bounds: sizes.
    """
    after, seconds = Cursor(first - 1), bounds.stream_wait_seconds

    async def hold(state: Share) -> Share:
        """Hold the memory of a read, of the conversation that the encoder makes of it, and of its frames."""
        needed = history.needed(await session.head())
        await state.take(needed + 3 * min(needed, bounds.run_bytes), seconds=seconds)
        return state.paid()

    async def corrected(until: int, state: Share) -> bytes:
        correction = frames.correction()
        if correction is None:
            return b""
        paid = await hold(state)
        stored = history.pieces(session, Cursor(first - 1), until, paid, correction.add, right=right)
        async with aclosing(stored) as pieces:
            async for _ in pieces:
                pass
        return correction.caught_up()

    async with share.part() as state:
        try:
            while not frames.is_done:
                # All at once: a stream that waits for more while it holds some could wait for another such stream.
                paid = await hold(state)
                async with aclosing(history.pieces(session, after, None, paid, frames.add, right=right)) as pieces:
                    async for rendered, cursor in pieces:
                        rendered.reverse()
                        while rendered:
                            if frame := rendered.pop():
                                yield frame
                        after = cursor
                        if frames.is_done:
                            return
                if frame := await corrected(after.position, state):
                    yield frame
                items = session.subscribe(after=after, live=True)
                async with aclosing(items if right is None else right.guarded(items)) as found:
                    async for item in found:
                        after = item.cursor
                        if isinstance(item, Notice) and item.kind == "fellBehind":
                            break  # read the stored entries again, in small pieces
                        # Before the frame is made, as it cannot be made again.
                        if (size := _size_of(item)) > bounds.small_bytes:
                            await share.take(3 * size, seconds=seconds)
                        if frame := _frame_of(item, frames):
                            yield frame
                        del frame
                        share.keep(0)
                        if frame := await corrected(after.position, state):
                            yield frame
                        if frames.is_done:
                            return
                        if isinstance(item, Envelope) or item.kind == "caughtUp":
                            state.keep(frames.held)
                    else:
                        return
        except (AccessDenied, BusError) as error:
            yield frames.fail(_reason(error))


def _reason(error: AccessDenied | BusError) -> str:
    """Return what people read about the error that ends a stream."""
    if isinstance(error, AccessDenied):
        return "The session was handed over, or the rules have changed: this token does not allow it."
    if isinstance(error, LogRolledBack):
        return "The server has lost its last entries: load the conversation again."
    if isinstance(error, CursorTrimmed):
        return "The beginning of this answer is no longer kept."
    return without_secrets(str(error))


def _size_of(item: Envelope | Notice) -> int:
    """Return the size of an entry, as JSON. Live deltas and notices count nothing: they are small."""
    if not isinstance(item, Envelope) or item.delta:
        return 0
    message = item.message
    return len(message.raw if isinstance(message, DecodeFailure) else message.to_json())


def _frame_of(item: Envelope | Notice, frames: RunFrames) -> bytes:
    if isinstance(item, Envelope):
        return frames.add(item)
    if item.kind == "caughtUp":
        return frames.caught_up(item.cursor.position)
    if item.kind == "closed":  # no worker can append the rest
        return frames.fail("The session was closed before this answer was complete.")
    return b""


# Encode server-sent events. Pure.
#
# Lines end in LF, because some clients do not accept CRLF. `data` is one line of ASCII JSON. `id` and `event` contain
# no character that ends a line or makes a parser drop the field.
#
# Source: the WHATWG specification, "server-sent events".

HEARTBEAT = b": hb\n\n"
"""A comment in the format of server-sent events. Clients ignore it, and sending it detects a dead connection."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_NOT_IN_FIELD = re.compile(r"[\r\n\0]")
_LINE_END = re.compile(r"[\r\n]")


def encode_frame(event: str, json_text: str, *, id: str | None = None) -> bytes:
    """Encode one event.

    Args:
        event: the event's name, by which clients listen.
        json_text: a valid JSON text. Line breaks between its tokens become spaces.
        id: the id that the client sends back as `Last-Event-ID`; None or "" keeps the client's previous id.
    """
    return encode_lines(event, json_text) + encode_end(id)


def encode_lines(event: str, json_text: str) -> bytes:
    """Encode one event without its end. `encode_end` follows. The arguments are those of `encode_frame`."""
    return f"event: {_field(event)}\ndata: {_one_ascii_line(json_text)}\n".encode("ascii")


def encode_end(id: str | None) -> bytes:
    """Encode the id of an event and the event's end. None or "" keeps the client's previous id."""
    return f"id: {clean}\n\n".encode("ascii") if id and (clean := _field(id)) else b"\n"


def encode_retry(seconds: float) -> bytes:
    """Encode the pause before a reconnect. The pause is sent once, in the first frame of a stream."""
    # Not a separate frame: browsers ignore such a frame, but some clients report it as an event without data.
    return f"retry: {round(seconds * 1_000)}\n".encode("ascii")


def _field(text: str) -> str:
    # Cursors and event names are ASCII, so any other character is not from this program.
    return _NOT_ASCII.sub("?", _NOT_IN_FIELD.sub("", text))


def _one_ascii_line(json_text: str) -> str:
    return _NOT_ASCII.sub(_escape, _LINE_END.sub(" ", json_text))


def _escape(match: re.Match[str]) -> str:
    # Non-ASCII characters occur only in JSON strings, where an escape means the same. A character above U+FFFF needs a
    # pair of escapes.
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


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
