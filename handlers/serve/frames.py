"""The frames of one session for one subscriber: stored entries, new entries, live deltas and notices.

`session_frames` makes the frames of lanebus's own event stream, `run_frames` feeds an encoder of another protocol.
"""

import json
import re
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Protocol

from pydantic import JsonValue

from lanebus.bus import ALL_LANES, Session
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack
from lanebus.bus.messages import Delta, Lane
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import START, Cursor, DecodeFailure, Envelope, Notice, Selection
from lanebus.handlers.serve.bounds import DEFAULT_UI_BOUNDS, UiBounds
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.gate import SessionRight
from lanebus.handlers.serve.http_server import chunk_of
from lanebus.handlers.serve.replies import AccessDenied, envelope_json, name_of, status_of
from lanebus.handlers.serve.transfer import History

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
