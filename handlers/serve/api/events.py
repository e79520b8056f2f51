"""The event streams: of one session, of several sessions, and of the list of sessions."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import anyio
import anyio.lowlevel
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import Session
from lanebus.bus.errors import BusError, InvalidCursor
from lanebus.bus.messages import Lane
from lanebus.bus.wire import START, Cursor, check_session_id
from lanebus.handlers.serve.access.credentials import AccessRequest
from lanebus.handlers.serve.api.endpoint import (
    AFTER,
    KINDS,
    ApiContext,
    ApiEndpoint,
    Parameter,
    flag,
    lanes,
    parse_cursor,
)
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.errors import InvalidParameter
from lanebus.handlers.serve.gate import StreamAccess
from lanebus.handlers.serve.replies import AccessDenied
from lanebus.handlers.serve.stream import EventStream, Frame, Outlet, encode_end, session_frames

SESSIONS = Parameter[tuple[str, ...]](
    name="sessions",
    description="ids of the sessions, with commas",
    parse=lambda text: tuple(dict.fromkeys(text.split(","))),
    default=(),
    is_required=True,
)
CURSORS = Parameter(
    name="after",
    description="where to start in each session: `<session>:<cursor>` with commas, or the id of an earlier frame",
    parse=str,
    default="",
)


_LANES = lanes(
    "Lanes to send: `extension`, `llm`, both with a comma, or `all` that the token allows.", default="extension"
)
_LIVE = flag("live", "Whether to send live deltas. They belong to the LLM lane.", default=True)


async def events(api: ApiContext, request: Request) -> Response:
    """Stream the session as server-sent events after `Last-Event-ID`, else after `?after=`, else from its start.

    Without `lanes`, the extension lane is sent. `kinds` selects kinds of messages, and `live=false` leaves live deltas
    out. The frames of the stream itself, such as `caughtup`, are always sent.
    """
    session = api.session(request)
    last = request.headers.get("last-event-id")
    after = parse_cursor(last) if last else AFTER.of(request)
    chosen, kinds, live = _LANES.of(request), KINDS.of(request), _LIVE.of(request)
    allowed, asked = await api.gate.require_lanes(request, "read.events", session.id, chosen)
    access = api.gate.stream(request, asked)
    return EventStream(
        lambda share, outlet: session_frames(
            session,
            after,
            share,
            api.history,
            outlet=outlet,
            shared=api.shared_frames,
            lanes=allowed,
            kinds=kinds,
            live=live,
            right=access.right(session.id),
            bounds=api.bounds,
        ),
        streams=api.streams,
        budget=api.budget,
        bounds=api.bounds,
        access=access,
    )


async def merged_events(api: ApiContext, request: Request) -> Response:
    """Stream several sessions as server-sent events: the frames of each, with `session` in the data.

    The id of a frame holds the cursors of all sessions. Each session starts after its cursor in `Last-Event-ID`, else
    in `?after=`, else from its start. 403 if the token may not read one of the sessions.
    """
    names, most = SESSIONS.of(request), api.bounds.streamed_sessions
    if not 0 < len(names) <= most:
        raise InvalidParameter("sessions", ",".join(names), f"name 1 to {most} sessions, with commas")
    sessions = {name: api.bus.session(name) for name in names}
    given = parse_cursors(request.headers.get("last-event-id") or CURSORS.of(request), most)
    after = {name: cursor for name, cursor in given.items() if name in sessions}
    chosen, kinds, live = _LANES.of(request), KINDS.of(request), _LIVE.of(request)
    api.streams.check(api.gate.stream(request, ()).key, len(names))  # before the rights to all sessions are read
    api.gate.count_followed(request, len(names))
    allowed, asked = dict[str, frozenset[Lane]](), list[AccessRequest]()
    for name in names:
        try:
            allowed[name], of_one = await api.gate.require_lanes(request, "read.events", name, chosen)
        except AccessDenied as refused:  # the client may ask again without this session
            raise AccessDenied(f"session {name}: {refused.message}") from None
        asked += of_one
    merged, access = MergedFrames(after), api.gate.stream(request, asked)

    def part(session: Session, share: Share, outlet: Outlet) -> AsyncGenerator[Frame]:
        return session_frames(
            session,
            after.get(session.id, START),
            share,
            api.history,
            outlet=outlet,
            shared=api.shared_frames,
            lanes=allowed[session.id],
            kinds=kinds,
            live=live,
            right=access.right(session.id),
            bounds=api.bounds,
        )

    return EventStream(
        lambda share, outlet: merged.run(sessions, part, share, outlet, access=access),
        streams=api.streams,
        budget=api.budget,
        bounds=api.bounds,
        access=access,
        followed=len(sessions),
        encode=merged.encode,
    )


async def changes(api: ApiContext, request: Request) -> Response:
    """Stream which sessions have new entries: `changed` frames with `{"sessions": [{"session": …, "position": …}]}`.

    The first frame is `ready`; a client that lists the sessions after it misses nothing. After `missed`, some sessions
    were not named, and the client lists the sessions again. The frames have no ids. Only sessions that the token may
    list are named.
    """
    principal = await api.gate.require(request, "read.sessions")
    asked = AccessRequest(principal=principal, action="read.sessions")

    async def frames(share: Share, outlet: Outlet) -> AsyncGenerator[Frame]:
        del share, outlet
        is_first = True
        async with aclosing(api.changes.follow()) as found:
            async for change in found:
                if is_first:
                    yield Frame("", "ready", "{}", None)
                is_first = False
                named = [
                    {"session": session, "position": position}
                    for session, position in change.positions.items()
                    if await api.gate.may(request, "read.sessions", session)
                ]
                for at in range(0, len(named), api.bounds.sessions):
                    yield Frame("", "changed", json.dumps({"sessions": named[at : at + api.bounds.sessions]}), None)
                if not change.is_complete:
                    yield Frame("", "missed", "{}", None)

    return EventStream(
        frames, streams=api.streams, budget=api.budget, bounds=api.bounds, access=api.gate.stream(request, [asked])
    )


_STREAM = ("text/event-stream",)
_LAST = "cursor after which to start; it comes before `after`"
ENDPOINTS = (
    ApiEndpoint(
        path="/api/sessions/{session}/events",
        handler=events,
        parameters=(AFTER, _LANES, KINDS, _LIVE),
        headers={"Last-Event-ID": _LAST},
        media_types=_STREAM,
    ),
    ApiEndpoint(
        path="/api/events",
        handler=merged_events,
        parameters=(SESSIONS, CURSORS, _LANES, KINDS, _LIVE),
        headers={"Last-Event-ID": _LAST},
        media_types=_STREAM,
    ),
    ApiEndpoint(path="/api/changes", handler=changes, media_types=_STREAM),
)


# Merge the frames of several sessions into one stream. The id of a frame holds the cursor of each session.
#
# An id is `<session>:<cursor>,<session>:<cursor>,…`: a client that sends it back continues each session after its last
# frame, also after the list of sessions has changed.

_FORM = "write <session>:<cursor> with commas, such as a:12,b:7, or send the id of an earlier frame"

PartFrames = Callable[[Session, Share, Outlet], AsyncGenerator[Frame]]
"""Returns the frames of one session."""


def cursors_text(cursors: Mapping[str, Cursor]) -> str:
    """Return cursors of sessions as one text."""
    return ",".join(f"{session}:{cursor}" for session, cursor in cursors.items())


def parse_cursors(text: str, most: int) -> dict[str, Cursor]:
    """Return the cursors of a text that `cursors_text` made.

    Args:
        text: the text.
        most: maximum number of sessions.

    Raises:
        InvalidCursor: the text has another form, names a session twice, or names too many.
        InvalidSessionId: a session's id is not allowed.
    """
    found: dict[str, Cursor] = {}
    parts = text.split(",", most) if text else []
    for part in parts:
        session, colon, cursor = part.partition(":")
        if not colon or not part.isascii() or len(parts) > most or session in found:
            raise InvalidCursor(text, _FORM)
        try:
            found[check_session_id(session)] = Cursor.parse(cursor)
        except InvalidCursor:
            raise InvalidCursor(text, _FORM) from None
    return found


class MergedFrames:
    """The frames of several sessions on one stream. Sends one frame at a time."""

    def __init__(self, cursors: Mapping[str, Cursor]) -> None:
        """
        Args:
            cursors: where the client is in the sessions that it has seen before.
        """
        self._cursors = dict(cursors)
        self._lock = anyio.Lock()
        self._frame: Frame | None = None
        self._offered, self._taken = anyio.Event(), anyio.Event()

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame when it is sent. Its id has the cursors of all frames sent so far."""
        if frame.cursor is None:
            return frame.named_lines + encode_end(None)
        self._cursors[frame.session] = frame.cursor
        return frame.named_lines + encode_end(cursors_text(self._cursors))

    async def run(
        self,
        sessions: Mapping[str, Session],
        part: PartFrames,
        share: Share,
        outlet: Outlet,
        *,
        access: StreamAccess | None = None,
    ) -> AsyncGenerator[Frame]:
        """Yield the frames of all sessions, in the order of each session.

        A session that was erased, or that the client may not read any more, ends with a `failed` frame, and the others
        go on. After any other `failed`, and after `rolledback`, the stream ends: the client reconnects, and continues
        after the id of its last frame.

        Args:
            sessions: the sessions by id.
            part: returns the frames of one session.
            share: the memory of the response.
            outlet: where new frames go, if they can be written at once.
            access: the client's right to the stream; None means that it may read all sessions until the end.
        """
        gate, left = _Outlet(outlet, self._lock), len(sessions)
        over = False

        async def pump(session: Session) -> None:
            nonlocal left, over
            async with share.part() as own, aclosing(part(session, own, gate)) as frames:
                async for frame in frames:
                    event = frame.event
                    await self._offer(frame)
                    del frame
                    is_failed = event == "failed" and not await _is_gone(session, access)
                    over = over or event == "rolledback" or is_failed
            left -= 1
            self._offered.set()

        async with anyio.create_task_group() as tasks:
            for session in sessions.values():
                tasks.start_soon(pump, session)
                await anyio.lowlevel.checkpoint()  # other clients have their turn between the starts
            while left and not over:
                await self._offered.wait()
                self._offered = anyio.Event()
                if (frame := self._frame) is not None:
                    self._frame = None
                    try:
                        yield frame
                    except GeneratorExit:  # the task group would raise it in a group
                        break
                    del frame
                    self._taken.set()
            tasks.cancel_scope.cancel()

    async def _offer(self, frame: Frame) -> None:
        """Hand a frame to `run`, and wait until it was sent."""
        async with self._lock:
            self._frame, self._taken = frame, anyio.Event()
            del frame
            self._offered.set()
            await self._taken.wait()


class _Outlet:
    """The stream's outlet for one session. It is not ready while a frame of any session is on its way."""

    def __init__(self, outlet: Outlet, lock: anyio.Lock) -> None:
        self._outlet, self._lock = outlet, lock

    def is_ready(self) -> bool:
        return not self._lock.locked() and self._outlet.is_ready()

    def write(self, frame: Frame) -> None:
        self._outlet.write(frame)


async def _is_gone(session: Session, access: StreamAccess | None) -> bool:
    """Return whether a session was erased, or the client may not read it any more."""
    right = None if access is None else access.right(session.id)
    if right is not None and not right.is_open:
        return True
    try:
        return (await session.head()).is_erased
    except BusError:
        return False
