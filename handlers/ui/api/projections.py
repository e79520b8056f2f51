"""The states of projections: lanebus's own, and those that the server was given."""

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus.wire.envelope import Cursor
from lanebus.handlers.projections.projection import Projection
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.parameter import Parameter
from lanebus.handlers.ui.api.parameters import POSITION, parse_cursor
from lanebus.handlers.ui.projection_frames import projected_json, projection_frames, state_at
from lanebus.handlers.ui.replies import RequestRefused, answer
from lanebus.handlers.ui.stream import EventStream

__all__ = ("ENDPOINTS",)

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
