"""What a token allows, and the sessions."""

from collections.abc import Collection, Container
from typing import get_args

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus.errors import SessionErased
from lanebus.bus.log.head import SessionHead
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.projections.cards import CardState
from lanebus.handlers.ui.api.answers import AccessAnswer, SessionAnswer, SessionsAnswer, WaitingAnswer
from lanebus.handlers.ui.api.context import ApiContext
from lanebus.handlers.ui.api.endpoint import ApiEndpoint
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.api.parameter import Parameter
from lanebus.handlers.ui.api.parameters import count_parameter, text_parameter
from lanebus.handlers.ui.auth import identified
from lanebus.handlers.ui.replies import answer
from lanebus.handlers.ui.session_list import (
    SORTS,
    ListCursor,
    SessionQuery,
    Sort,
    VisibleRow,
    facets_json,
    page_of,
    waiting_json,
)

__all__ = ("ENDPOINTS",)

_ID = text_parameter("id", "only the session with this id")
_LIMIT = count_parameter("limit", "maximum number; one over 500 counts as 500", least=1)
_SEARCH = text_parameter("search", "a part of the id or the title, in any case")
_AGENT = text_parameter("agent", "only sessions of this agent")
_STATE = text_parameter("state", f"only sessions that are {', '.join(get_args(CardState))}; several with commas")
_CURSOR = Parameter[ListCursor | None](
    name="cursor", description="the `cursor` of the page before", parse=ListCursor.parse, default=None
)


def _sort(text: str) -> Sort:
    if text not in SORTS:
        raise InvalidParameter("sort", text, f"use one of {', '.join(SORTS)}")
    return text


_SORT = Parameter[Sort](
    name="sort",
    description="`activity` (newest first), `created` (newest first), `title`, or `cost` (highest first)",
    parse=_sort,
    default="activity",
    schema={"type": "string", "enum": [*SORTS]},
)


async def access(api: ApiContext, request: Request) -> Response:
    """Return `{"name": …, "canWrite": …, "actions": […], "lanes": […], "sessions": […], "expires": …}`: what the
    client's token allows. `expires` is a Unix time in seconds, or null.
    """
    del api
    principal = identified(request.scope).principal
    return answer(
        {
            "name": principal.name,
            "canWrite": any(each.partition(".")[0] != "read" for each in principal.actions),
            "actions": list(principal.actions),
            "lanes": sorted(lane.value for lane in principal.lanes),
            "sessions": list(principal.sessions),
            "expires": principal.expires,
        }
    )


async def sessions(api: ApiContext, request: Request) -> Response:
    """Return `{"count": …, "sessions": […], "cursor": …, "states": {…}, "agents": {…}, "isComplete": …,
    "progress": {…}}`: a page of the sessions that match.

    `count` is the number of all that match. `cursor` is null on the last page. `states` and `agents` say how many
    sessions each choice of these filters leaves, if the others stay. A session has a title, its state, cost
    and waiting calls, or null where the token does not allow the lane or its entries were not read yet. The server
    reads them from its start on, and for a bounded time in each request: repeat it until `isComplete` is true.
    `progress` has the number of `sessions` that the token allows, and how many of them were `read`. `failure` says why
    a session is dead or tried again, to a token that may read its dead letters; `POST …/redrive` gives a dead one back
    to workers.
    """
    limit = min(_LIMIT.of(request) or api.bounds.sessions, api.bounds.sessions)
    states = frozenset((_STATE.of(request) or "").split(",")) - {""}
    if not states <= {*get_args(CardState)}:
        known = ", ".join(get_args(CardState))
        raise InvalidParameter("state", _STATE.of(request) or "", f"use one or more of {known}, with commas")
    query = SessionQuery(
        limit=limit,
        session=_ID.of(request),
        search=_SEARCH.of(request) or "",
        agent=_AGENT.of(request),
        states=states,
        sort=_SORT.of(request),
        cursor=_CURSOR.of(request),
    )
    if query.cursor is not None and query.cursor.sort != query.sort:
        raise InvalidParameter("cursor", str(query.cursor), "it is of another `sort`: begin without a cursor")
    await api.gate.require(request, "read.sessions")

    async def listed() -> object:
        served = await api.bus.live_workers()
        await api.index.refresh(heads_only=not query.needs_entries)
        rows = await _visible(api, request, "read.sessions")
        page = page_of(rows.values(), query)
        unread = [each.row.head.session for each in page.shown if api.index.is_stale(each.row.head.session)]
        if unread or not query.needs_entries:
            await api.index.refresh(unread)
            rows = await _visible(api, request, "read.sessions")
            page = page_of(rows.values(), query)
        failed = [each.row.head for each in page.shown if each.failure is not None]
        letters = await api.gate.visible_lanes(request, "read.dead_letters", failed)
        told = {name for name, lanes in letters.items() if len(lanes) == len(Lane)}
        origins = rows if api.gate.is_limited(request) else None
        return {
            "count": page.count,
            "sessions": [
                {**_head_json(shown.row.head, served, _origin(shown.row.head, origins)), **_card_json(shown, told)}
                for shown in page.shown
            ],
            "cursor": None if page.cursor is None else str(page.cursor),
            **facets_json(rows.values(), query, api.bounds.agents),
            **_progress_json(api, rows),
        }

    return api.listed(listed)


async def waiting(api: ApiContext, request: Request) -> Response:
    """Return `{"count": …, "waiting": […], "isComplete": …, "progress": …}`: the calls of all sessions that wait for a
    person.

    The longest wait comes first. A call with a `decision` waits for a worker to apply it, and is not counted.
    `GET …/call` has the whole call. While `isComplete` is false, calls may be missing: repeat the request. `progress`
    is that of `GET /api/sessions`.
    """
    limit = min(_LIMIT.of(request) or api.bounds.sessions, api.bounds.sessions)
    await api.gate.require(request, "read.waiting")

    async def listed() -> object:
        await api.index.refresh()
        rows = await _visible(api, request, "read.waiting")
        return {**waiting_json(rows.values(), limit), **_progress_json(api, rows)}

    return api.listed(listed)


def _progress_json(api: ApiContext, rows: Collection[str]) -> dict[str, JsonValue]:
    """Return how far the server has read the sessions that the client may see."""
    unread = api.index.unread(rows)
    return {"isComplete": not unread, "progress": {"sessions": len(rows), "read": len(rows) - unread}}


async def _visible(api: ApiContext, request: Request, action: str) -> dict[str, VisibleRow]:
    """Return the sessions that the client may see, with the lanes that it may read of each.

    The rows are those of whose agents the rules are asked: meanwhile, another request may refresh the index.
    """
    rows = {**api.index.rows}
    lanes = await api.gate.visible_lanes(request, action, [row.head for row in rows.values()])
    return {name: VisibleRow(rows[name], found) for name, found in lanes.items()}


def _card_json(shown: VisibleRow, told: Container[str]) -> dict[str, JsonValue]:
    return {
        "title": shown.title,
        "state": shown.state,
        "failure": shown.failure if shown.row.head.session in told else None,
        "cost": shown.cost,
        "turns": shown.turns,
        "waiting": shown.waiting,
        "isRead": shown.row.is_read,
    }


async def head(api: ApiContext, request: Request) -> Response:
    """Return the head of a session. The position is 0 if the session has no entries. 409 if it was erased.

    `origin` is null if the session is no fork, or if the token does not allow the session that it was forked from.
    """
    session = api.session(request)
    await api.gate.require(request, "read.head", session=session.id)
    found = await session.head()
    if found.is_erased:
        raise SessionErased(found.session)
    origin = await origin_json(api, request, "read.head", found)
    return answer(_head_json(found, await api.bus.live_workers(), origin))


async def origin_json(api: ApiContext, request: Request, action: str, head: SessionHead) -> dict[str, JsonValue] | None:
    """Return what a session was forked from; None if it is no fork, or if the client may not do `action` there."""
    if head.origin is None:
        return None
    name = head.origin.session
    is_allowed = not api.gate.is_limited(request) or await api.gate.may(request, action, name)
    return _origin(head, {name} if is_allowed else ())


def _origin(head: SessionHead, allowed: Container[str] | None) -> dict[str, JsonValue] | None:
    """Return what a session was forked from, if it is among the allowed sessions; None allows all."""
    origin = head.origin
    if origin is None or (allowed is not None and origin.session not in allowed):
        return None
    return {"session": origin.session, "position": origin.position}


def _head_json(head: SessionHead, served: Container[str], origin: dict[str, JsonValue] | None) -> dict[str, JsonValue]:
    return {
        "id": head.session,
        "agent": head.agent,
        "hasWorker": head.agent in served,
        "position": head.position,
        "created": head.created,
        "updated": head.updated,
        "sizeBytes": head.size_bytes,
        "trimmed": head.trimmed,
        "firstKept": head.first_kept,
        "archived": head.archived,
        "isClosed": head.is_closed,
        "origin": origin,
    }


ENDPOINTS = (
    ApiEndpoint(path="/api/access", handler=access, answer=AccessAnswer),
    ApiEndpoint(
        path="/api/sessions",
        handler=sessions,
        parameters=(_ID, _LIMIT, _CURSOR, _SEARCH, _AGENT, _STATE, _SORT),
        answer=SessionsAnswer,
    ),
    ApiEndpoint(path="/api/waiting", handler=waiting, parameters=(_LIMIT,), answer=WaitingAnswer),
    ApiEndpoint(path="/api/sessions/{session}", handler=head, answer=SessionAnswer),
)
