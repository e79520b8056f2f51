"""What the page shows beside the lanes: status, calls that wait, usage and projections; and the page's files."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import anyio
from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from lanebus.bus import Bus, FailedWork, Session, SessionHead
from lanebus.bus.errors import BusError, CursorTrimmed, LogRolledBack, NoSuchPosition
from lanebus.bus.messages import AssistantMessage, Lane, ToolCallBlock, ToolWaiting
from lanebus.bus.text import without_secrets
from lanebus.bus.wire import Cursor, Notice
from lanebus.handlers.projections import (
    STATUS,
    USAGE,
    CardState,
    Command,
    LoopStatus,
    Projected,
    Projection,
    Views,
    decisions,
    doing,
    fold,
    load_stored,
    look_at_state,
    own_loop,
    start_of,
    summary,
    waiting_calls,
)
from lanebus.handlers.serve.api.bodies import CallAnswer, StatusAnswer, UsageAnswer
from lanebus.handlers.serve.api.endpoint import POSITION, ApiContext, ApiEndpoint, Parameter, parse_cursor
from lanebus.handlers.serve.api.sessions import decision_json, failure_json
from lanebus.handlers.serve.budget import Share
from lanebus.handlers.serve.gate import SessionRight
from lanebus.handlers.serve.json_text import spliced
from lanebus.handlers.serve.page import Asset
from lanebus.handlers.serve.replies import AccessDenied, RequestRefused, answer
from lanebus.handlers.serve.stream import EventStream, Frame, failed_frame
from lanebus.handlers.serve.transfer import PacedFile

# The endpoints of the agent's status, a tool call and the usage.

_CALL_ID = Parameter(name="id", description="id of the tool call", parse=str, default="", is_required=True)


async def status(api: ApiContext, request: Request) -> Response:
    """Return what the agent does, which calls wait for a person, and which commands have no answer yet.

    `state` is that of the list of sessions. `failure` tells why the session is dead or tried again, to a token that may
    read its dead letters. A call with a `decision` waits for a worker, and no longer for a person.
    """
    session = api.session(request)
    await api.gate.require(request, "read.status", session=session.id, lanes=(Lane.EXTENSION,))

    async def looked() -> object:
        head = await session.head()
        state, work = await state_of(api.views, api.bus, head)
        letters = {} if work is None else await api.gate.visible_lanes(request, "read.dead_letters", [head])
        is_told = len(letters.get(session.id, ())) == len(Lane)
        return await status_view(api.views, session, state, work if is_told else None)

    return api.view(looked)


async def call(api: ApiContext, request: Request) -> Response:
    """Return one tool call of the newest loop: the call whose id is the query parameter `id`. 404 if there is none.

    The field `text` has all arguments, and the field `callHash` their hash. An approval that repeats this
    `callHash` is refused if the call's arguments have another hash.
    """
    session, call_id = api.session(request), _CALL_ID.of(request)
    await api.gate.require(request, "read.call", session=session.id, lanes=(Lane.LLM,))
    return api.view(lambda: call_view(api.views, session, call_id))


async def usage(api: ApiContext, request: Request) -> Response:
    """Return the tokens and the cost of the session."""
    session = api.session(request)
    await api.gate.require(request, "read.usage", session=session.id, lanes=Lane)
    return api.view(lambda: usage_view(api.views, session))


_SESSION = "/api/sessions/{session}"
ENDPOINTS = (
    ApiEndpoint(path=f"{_SESSION}/status", handler=status, answer=StatusAnswer),
    ApiEndpoint(path=f"{_SESSION}/call", handler=call, answer=CallAnswer, parameters=(_CALL_ID,)),
    ApiEndpoint(path=f"{_SESSION}/usage", handler=usage, answer=UsageAnswer),
)


# The agent's status and the usage as JSON.


async def usage_view(views: Views, session: Session) -> Mapping[str, object]:
    """Return the tokens and the cost in US dollars of a session.

    `cost` is null if no call has a known cost. `countedFrom` is the first counted position if earlier entries were
    trimmed before they were counted, else null.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, USAGE)
    total = now.state.total
    return {
        **summary(total.usage),
        "calls": total.calls,
        "calls_of_unknown_cost": total.calls_of_unknown_cost,
        "countedFrom": now.counted_from,
    }


async def state_of(views: Views, bus: Bus, head: SessionHead) -> tuple[CardState, FailedWork | None]:
    """Return what a session does, and its work that is dead or tried again, as the list of sessions tells it.

    Raises:
        BusError: the log or the state of its work could not be read.
    """
    session = bus.session(head.session)
    work = (await bus.failed_work().read(session.id)).get(session.id)
    state = await look_at_state(session, head, work, views)
    return state, work if state in {"dead", "retrying"} else None


async def status_view(
    views: Views, session: Session, state: CardState, work: FailedWork | None
) -> Mapping[str, object]:
    """Return what the agent does, the calls that wait for a person, and the commands without an answer.

    Args:
        views: cached states of the projections.
        session: the session.
        state: what `state_of` returned.
        work: the failed work to tell; None tells none.

    Raises:
        BusError: the log could not be read.
    """
    now = await views.look(session, STATUS)
    status, loop = now.state, own_loop(session.id, now.state)
    is_open = loop is not None and (loop.ended is None or loop.is_stopped)
    decided = decisions(status)
    waiting = waiting_calls(loop) if loop is not None and is_open else ()
    return {
        "position": now.position,
        "state": state,
        "failure": failure_json(work),
        "doing": doing(session.id, status),
        "loop": None if loop is None else _loop_json(loop),
        "waiting": [_waiting_json(call, decided.get(call.tool_call_id)) for call in waiting],
        "commands": [{"position": each.position, "kind": each.message.kind} for each in status.commands],
    }


def _loop_json(loop: LoopStatus) -> Mapping[str, object]:
    return {
        "loopId": loop.loop_id,
        "turnIndex": None if loop.turn is None else loop.turn.turn_index,
        "started": loop.started,
        "ended": loop.ended,
    }


def _waiting_json(call: ToolWaiting, decision: Command | None) -> Mapping[str, object]:
    return {
        "turnId": {"loopId": call.turn_id.loop_id, "turnIndex": call.turn_id.turn_index},
        "toolCallId": call.tool_call_id,
        "toolName": call.tool_name,
        "why": call.why,
        "decision": decision_json(decision),
    }


async def call_view(views: Views, session: Session, call_id: str) -> Mapping[str, object]:
    """Return `{"toolCallId", "toolName", "position", "text", "callHash"}` of a call of the newest loop.

    `text` is the arguments as JSON for people, or as the provider sent them. It is made here, because a browser changes
    large numbers when it reads JSON.

    Args:
        views: cached states of the projections.
        session: the session.
        call_id: the tool call's id. If several answers have a call of this id, the newest one is returned.

    Raises:
        RequestRefused: 404 if the newest loop has no such call.
        BusError: the log could not be read.
    """
    loop = own_loop(session.id, (await views.look(session, STATUS)).state)
    found: tuple[int, ToolCallBlock] | None = None
    if loop is not None:
        answers = session.read(lanes={Lane.LLM}, kinds={"assistant"}, after=Cursor(max(loop.position - 1, 0)))
        async with aclosing(answers):
            async for envelope in answers:
                if isinstance(envelope.message, AssistantMessage):
                    for block in envelope.message.tool_calls():
                        if block.id == call_id:
                            found = (envelope.position, block)
    if found is None:
        raise RequestRefused(404, "no_such_call", "the newest loop has no tool call with this id")
    position, call = found
    text = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False, indent=2)
    return {
        "toolCallId": call.id,
        "toolName": call.name,
        "position": position,
        "text": text,
        "callHash": call.call_hash,
    }


# The states of projections: lanebus's own, and those that the server was given.


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
            session,
            found,
            after,
            share,
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


PROJECTION_ENDPOINTS = (
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


# The files of the page.


async def index(api: ApiContext, request: Request) -> Response:
    """Return the page."""
    return _file(api, api.page.document, request)


async def static(api: ApiContext, request: Request) -> Response:
    """Return a file of the page; 404 if the page has no file of this name."""
    path = str(request.path_params["path"])
    if path not in api.page.assets:
        raise HTTPException(404)
    return _file(api, api.page.assets[path], request)


async def favicon(api: ApiContext, request: Request) -> Response:
    """Return the icon for browsers that request it at the root."""
    return _file(api, api.page.assets["favicon.svg"], request)


def _file(api: ApiContext, asset: Asset, request: Request) -> Response:
    kept = {"ETag": asset.tag, "Cache-Control": asset.caching, "Vary": "Accept-Encoding"}
    if _names_tag(request.headers.getlist("if-none-match"), asset.tag):
        return Response(status_code=304, headers=kept)
    headers = {"Content-Type": asset.media_type, **kept}
    if not _takes_gzip(request.headers.get("accept-encoding", "")):
        return PacedFile(asset.content, headers, budget=api.budget, bounds=api.bounds)
    return PacedFile(asset.zipped, {**headers, "Content-Encoding": "gzip"}, budget=api.budget, bounds=api.bounds)


def _names_tag(fields: Sequence[str], tag: str) -> bool:
    """Return whether `If-None-Match` names a tag, weak or not: a proxy that compresses again may change that."""
    named = {each.strip().removeprefix("W/") for field in fields for each in field.split(",")}
    return bool({"*", tag.removeprefix("W/")} & named)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.split(","):
        coding, _, quality = each.partition(";")
        if coding.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


PAGE_ENDPOINTS = (
    ApiEndpoint(path="/", handler=index, is_file=True),
    ApiEndpoint(path="/static/{path:path}", handler=static, is_file=True),
    ApiEndpoint(path="/favicon.ico", handler=favicon, is_file=True),
)
