"""What a token allows, and the sessions."""

from collections.abc import Container, Mapping
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
    """Return `{"count": …, "sessions": […], "cursor": …, "states": {…}, "agents": {…}, "isComplete": …}`: a page of the
    sessions that match.

    `count` is the number of all that match. `cursor` is null on the last page. `states` and `agents` say how many
    sessions each choice of these filters leaves, if the others stay. A session has a title, its state, cost
    and waiting calls, or null where the token does not allow the lane or its entries were not read yet. The server
    reads them for a bounded time in each request: repeat it until `isComplete` is true.
    """
    limit = min(_LIMIT.of(request) or api.bounds.sessions, api.bounds.sessions)
    states = frozenset((_STATE.of(request) or "").split(",")) - {""}
    if not states <= {*get_args(CardState)}:
        known = ", ".join(get_args(CardState))
        raise InvalidParameter("state", _STATE.of(request) or "", f"use one or more of {known}, with commas")
    query = SessionQuery(
        limit=limit,
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
        lanes = await _lanes(api, request, "read.sessions")
        rows = _visible(api, lanes)
        page = page_of(rows, query)
        unread = [each.row.head.session for each in page.shown if api.index.is_stale(each.row.head.session)]
        if unread or not query.needs_entries:
            await api.index.refresh(unread)
            rows = _visible(api, lanes)
            page = page_of(rows, query)
        return {
            "count": page.count,
            "sessions": [{**_head_json(shown.row.head, served), **_card_json(shown)} for shown in page.shown],
            "cursor": None if page.cursor is None else str(page.cursor),
            **facets_json(rows, query, api.bounds.agents),
            "isComplete": api.index.is_read(lanes),
        }

    return api.listed(listed)


async def waiting(api: ApiContext, request: Request) -> Response:
    """Return `{"count": …, "waiting": […], "isComplete": …}`: the calls of all sessions that wait for a person.

    The longest wait comes first. `GET …/call` has the whole call. Repeat the request until `isComplete` is true.
    """
    limit = min(_LIMIT.of(request) or api.bounds.sessions, api.bounds.sessions)
    await api.gate.require(request, "read.waiting")

    async def listed() -> object:
        await api.index.refresh()
        lanes = await _lanes(api, request, "read.waiting")
        return {**waiting_json(_visible(api, lanes), limit), "isComplete": api.index.is_read(lanes)}

    return api.listed(listed)


async def _lanes(api: ApiContext, request: Request, action: str) -> Mapping[str, frozenset[Lane]]:
    return await api.gate.visible_lanes(request, action, [row.head for row in api.index.rows.values()])


def _visible(api: ApiContext, lanes: Mapping[str, frozenset[Lane]]) -> list[VisibleRow]:
    """Return the sessions that the client may see, with the lanes that it may read of each."""
    return [VisibleRow(row, lanes[name]) for name, row in api.index.rows.items() if name in lanes]


def _card_json(shown: VisibleRow) -> dict[str, JsonValue]:
    return {
        "title": shown.title,
        "state": shown.state,
        "cost": shown.cost,
        "turns": shown.row.turns,
        "waiting": shown.waiting,
        "isRead": shown.row.is_read,
    }


async def head(api: ApiContext, request: Request) -> Response:
    """Return the head of a session. The position is 0 if the session has no entries. 409 if it was erased."""
    session = api.session(request)
    await api.gate.require(request, "read.head", session=session.id)
    found = await session.head()
    if found.is_erased:
        raise SessionErased(found.session)
    return answer(_head_json(found, await api.bus.live_workers()))


def _head_json(head: SessionHead, served: Container[str]) -> dict[str, JsonValue]:
    origin = head.origin
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
        "origin": {"session": origin.session, "position": origin.position} if origin else None,
    }


ENDPOINTS = (
    ApiEndpoint(path="/api/access", handler=access, answer=AccessAnswer),
    ApiEndpoint(
        path="/api/sessions",
        handler=sessions,
        parameters=(_LIMIT, _CURSOR, _SEARCH, _AGENT, _STATE, _SORT),
        answer=SessionsAnswer,
    ),
    ApiEndpoint(path="/api/waiting", handler=waiting, parameters=(_LIMIT,), answer=WaitingAnswer),
    ApiEndpoint(path="/api/sessions/{session}", handler=head, answer=SessionAnswer),
)
