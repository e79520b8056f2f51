"""The event streams: of one session, of several sessions, and of the list of sessions."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.messages.lanes import Lane
from lanebus.bus.session.session import Session
from lanebus.bus.wire.envelope import START
from lanebus.handlers.access.request import AccessRequest
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.api.parameter import Parameter
from lanebus.handlers.ui.api.parameters import AFTER, KINDS, flag, lanes, parse_cursor
from lanebus.handlers.ui.budget import Share
from lanebus.handlers.ui.frames import Frame, Outlet, session_frames
from lanebus.handlers.ui.merged import MergedFrames, parse_cursors
from lanebus.handlers.ui.replies import AccessDenied
from lanebus.handlers.ui.stream import EventStream

__all__ = ("ENDPOINTS",)

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
            *(session, after, share, api.history),
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
            *(session, after.get(session.id, START), share, api.history),
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
