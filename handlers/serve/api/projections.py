"""The states of projections: lanebus's own, and those that the server was given."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus import Session
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack, NoSuchPosition
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import Cursor, Notice
from lanebus.handlers.projections import Projected, Projection, fold, load_stored, start_of
from lanebus.handlers.serve.api.context import ApiContext
from lanebus.handlers.serve.api.endpoint import POSITION, ApiEndpoint, Parameter, parse_cursor
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.frames import Frame, failed_frame
from lanebus.handlers.serve.gate import SessionRight
from lanebus.handlers.serve.json_text import spliced
from lanebus.handlers.serve.replies import AccessDenied, RequestRefused, answer
from lanebus.handlers.serve.stream import EventStream

_AFTER = Parameter[Cursor | None](
    name="after", description="cursor of the last state that the client has", parse=parse_cursor, default=None
)


async def names(api: ApiContext, request: Request) -> Response:
    """Return `{"projections": [{"name": …, "version": …}, …]}`: the projections of this server."""
    await api.gate.require(request, "read.projections")
    found: list[JsonValue] = [{"name": each.name, "version": each.version} for each in api.projections.values()]
    return answer({"projections": found})


async def projection(api: ApiContext, request: Request) -> Response:
    """Return `{"name", "version", "position", "cursor", "countedFrom", "unreadable", "state"}` of a projection.

    `?position=` returns the state as of an earlier entry, which is folded anew. 404 if the server has no such
    projection. The token must allow the lanes that the projection reads.
    """
    session, found, position = api.session(request), _found(api, request), POSITION.of(request)
    await api.gate.require(request, "read.projections", session=session.id, lanes=found.lanes)

    async def look() -> bytes:
        if position is None:
            now = await api.views.look(session, found)
        else:
            now = await state_at(session, found, position)
        return projected_json(found, now).encode()

    return api.view(look)


async def projection_events(api: ApiContext, request: Request) -> Response:
    """Stream the state of a projection as server-sent events: `state` frames, as `GET …/projections/{name}` returns it.

    Changes that follow each other quickly make one frame. The id of a frame is its cursor: a client that sends it back
    as `Last-Event-ID` or `?after=` gets the next state when there is one. The stream ends like that of the session.
    """
    session, found = api.session(request), _found(api, request)
    last = request.headers.get("last-event-id")
    after = parse_cursor(last) if last else _AFTER.of(request)
    asked = await api.gate.required(request, "read.projections", session=session.id, lanes=found.lanes)
    access = api.gate.stream(request, asked)
    return EventStream(
        lambda share, outlet: projection_frames(
            lambda: api.folded(share.owner, lambda: api.views.look(session, found)),
            *(session, found, after, share),
            pause_seconds=api.bounds.state_seconds,
            small_bytes=api.bounds.small_bytes,
            right=access.right(session.id),
            wait_seconds=api.bounds.stream_wait_seconds,
        ),
        streams=api.streams,
        budget=api.budget,
        bounds=api.bounds,
        access=access,
    )


def _found(api: ApiContext, request: Request) -> Projection[object]:
    found = api.projections.get(str(request.path_params["name"]))
    if found is None:
        fault = "the server has no projection of this name: GET /api/projections lists those that it has"
        raise RequestRefused(404, "no_such_projection", fault)
    return found


class NamedProjection(TypedDict):
    """A projection of the server."""

    name: str
    version: int


class ProjectionsAnswer(TypedDict):
    """The projections of the server."""

    projections: list[NamedProjection]


class ProjectionAnswer(TypedDict):
    """The state of a projection."""

    name: str
    version: int
    position: int
    """last entry that the state includes"""
    cursor: str
    countedFrom: int | None
    """first entry that was folded, if earlier ones were trimmed unread"""
    unreadable: int
    """number of entries that could not be read"""
    state: JsonValue


_SESSION = "/api/sessions/{session}"
ENDPOINTS = (
    ApiEndpoint(path="/api/projections", handler=names, answer=ProjectionsAnswer),
    ApiEndpoint(
        path=f"{_SESSION}/projections/{{name}}", handler=projection, parameters=(POSITION,), answer=ProjectionAnswer
    ),
    ApiEndpoint(
        path=f"{_SESSION}/projections/{{name}}/events",
        handler=projection_events,
        parameters=(_AFTER,),
        headers={"Last-Event-ID": "cursor of the last state; it comes before `after`"},
        media_types=("text/event-stream",),
    ),
)


# The state of a projection as JSON, once or as the frames of an event stream.


def projected_json(projection: Projection[object], now: Projected[object]) -> str:
    """Return `{"name", "version", "position", "cursor", "countedFrom", "unreadable", "state"}`.

    Raises:
        InvalidProjection: the state cannot be written as JSON.
    """
    place = {
        "name": projection.name,
        "version": projection.version,
        "position": now.position,
        "cursor": str(now.cursor),
        "countedFrom": now.counted_from,
        "unreadable": now.unreadable,
    }
    return spliced(place, "state", projection.dump(now.state).decode())


async def state_at(session: Session, projection: Projection[object], position: int) -> Projected[object]:
    """Return a projection's state as of a past position. It is folded from the stored state, if that is older.

    Raises:
        NoSuchPosition: the session does not have the position.
        BusError: the log could not be read.
    """
    last = (await session.head()).position
    if position > last:
        raise NoSuchPosition(session.id, position, last)
    start = await load_stored(session, projection)
    if start is None or start.position > position:
        start = await start_of(session, projection)
    return start if start.position > position else await fold(session, projection, start, until=position)


async def projection_frames(
    look: Callable[[], Awaitable[Projected[object]]],
    session: Session,
    projection: Projection[object],
    after: Cursor | None,
    share: Share,
    *,
    pause_seconds: float,
    small_bytes: int,
    wait_seconds: float,
    right: SessionRight | None = None,
) -> AsyncGenerator[Frame]:
    """Yield the state of a projection, and again after changes. The id of a frame is its cursor.

    Changes within a pause make one frame, so a client sees the newest state and perhaps not each one before it.

    Args:
        look: returns the present state.
        session: the session.
        projection: the projection.
        after: cursor of the last state that the client has; a state of the same cursor is not sent again.
        share: holds the memory of a frame.
        pause_seconds: shortest time between two states.
        small_bytes: size up to which a frame takes no memory of the share.
        wait_seconds: longest wait for the memory of a frame.
        right: the client's right to the session, as for `session_frames`.
    """
    sent = after
    while True:
        try:
            now = await look()
            if now.cursor != sent:
                text = projected_json(projection, now)
                if (size := len(text)) > small_bytes and not share.take_nowait(size):
                    del text
                    await share.take(size, seconds=wait_seconds)
                    text = projected_json(projection, now)
                if right is not None:
                    await right.confirm()
                yield Frame(session.id, "state", text, now.cursor)
                del text
                share.keep(0)
                sent = now.cursor
            await _wait_changed(session, projection, now.cursor, right)
        except (LogRolledBack, CursorTrimmed):
            sent = None  # the next state is folded from what is left of the log
        except AccessDenied as refused:
            yield failed_frame(session.id, refused.status_code, refused.error, refused.message)
            return
        except BusError as error:
            failed = {"session": session.id, "message": without_secrets(str(error))}
            yield Frame(session.id, "failed", json.dumps(failed), None)
            return
        await anyio.sleep(pause_seconds)


async def _wait_changed(
    session: Session, projection: Projection[object], after: Cursor, right: SessionRight | None
) -> None:
    """Wait until the session has another entry that the projection reads."""
    items = session.subscribe(lanes=projection.lanes, kinds=projection.kinds, after=after)
    async with aclosing(items if right is None else right.guarded(items)) as found:
        async for item in found:
            if not isinstance(item, Notice) and not item.delta:
                return
