"""What a token allows, and the sessions: search, filter, sort and page them."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Literal, NamedTuple, get_args

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lanebus.bus import FailedWork, SessionHead
from lanebus.bus.errors import SessionErased
from lanebus.bus.messages import Approve, Deny, Lane
from lanebus.handlers.projections import CardState, Command
from lanebus.handlers.serve.api.bodies import AccessAnswer, SessionAnswer, SessionsAnswer, WaitingAnswer
from lanebus.handlers.serve.api.endpoint import ApiContext, ApiEndpoint, Parameter, count_parameter, text_parameter
from lanebus.handlers.serve.errors import InvalidParameter
from lanebus.handlers.serve.gate import confirm
from lanebus.handlers.serve.guard import identified
from lanebus.handlers.serve.replies import answer
from lanebus.handlers.serve.session_index import IndexRow

# Search, filter, sort and page the sessions of an index. Pure, apart from the reading of a cursor's text.

Sort = Literal["activity", "created", "title", "cost"]
SORTS: tuple[Sort, ...] = ("activity", "created", "title", "cost")

_SortKey = tuple[bool, float | str, str]
"""whether the value is unknown, the value, and the session's id: the order of a list"""


class VisibleRow(NamedTuple):
    """A session that a client may see, without what it may not see."""

    row: IndexRow
    lanes: frozenset[Lane]
    """the lanes that the client may read: it needs the LLM lane for the title, both for cost and turns, and the
    extension lane for the state"""

    @property
    def title(self) -> str | None:
        """The title, if the client may read it."""
        return self.row.title if Lane.LLM in self.lanes else None

    @property
    def cost(self) -> float | None:
        """The cost in US dollars, if the client may read it."""
        cost = self.row.cost if len(self.lanes) == len(Lane) else None
        return None if cost is None else float(cost)

    @property
    def turns(self) -> int | None:
        """The number of turns, if the client may read it."""
        return self.row.turns if len(self.lanes) == len(Lane) else None

    @property
    def state(self) -> CardState | None:
        """What the session does, if the client may read it. Every client may read whether a session is closed."""
        if self.row.head.is_closed:
            return "closed"
        return self.row.state if Lane.EXTENSION in self.lanes else None

    @property
    def waiting(self) -> int | None:
        """Number of calls without an approval or denial, if the client may read it."""
        may_read = Lane.EXTENSION in self.lanes and self.row.is_read
        return sum(call.decision is None for call in self.row.waits) if may_read else None

    @property
    def failure(self) -> dict[str, JsonValue] | None:
        """Why the session is dead or tried again, if it is and the client may read both lanes."""
        is_shown = len(self.lanes) == len(Lane) and self.state in {"dead", "retrying"}
        return failure_json(self.row.work) if is_shown else None


class ListCursor(NamedTuple):
    """The place after the last session of a page."""

    sort: Sort
    key: _SortKey

    def __str__(self) -> str:
        data = json.dumps([self.sort, *self.key], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "ListCursor":
        """Read the text of a cursor.

        Raises:
            InvalidParameter: the text is no cursor.
        """
        try:
            found: object = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
            match found:
                case [str(sort), bool(unknown), (int() | float() | str()) as value, str(session)] if sort in SORTS:
                    is_text = isinstance(value, str)
                    if is_text is (sort == "title") and not isinstance(value, bool):
                        return cls(sort, (unknown, value if isinstance(value, str) else float(value), session))
                case _:
                    pass
        except (ValueError, OverflowError, binascii.Error, RecursionError):
            pass
        raise InvalidParameter("cursor", text, "send the `cursor` of the page before, with the same `sort`")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """The sessions that a client wants, and their order."""

    limit: int
    session: str | None = None
    """only the session with this id"""
    search: str = ""
    """part of the id or title, in any case"""
    agent: str | None = None
    states: frozenset[str] = frozenset()
    """what the sessions do; empty means anything"""
    sort: Sort = "activity"
    cursor: ListCursor | None = None

    @property
    def needs_entries(self) -> bool:
        """Whether the choice and order of sessions depend on their entries, and not only on their heads."""
        return bool(self.search or self.states) or self.sort in {"title", "cost"}

    def matches(self, shown: VisibleRow) -> bool:
        """Return whether a session is one of those wanted."""
        head = shown.row.head
        if self.session is not None and head.session != self.session:
            return False
        if self.agent is not None and head.agent != self.agent:
            return False
        if self.states and shown.state not in self.states:
            return False
        wanted = self.search.casefold()
        return not wanted or wanted in head.session.casefold() or wanted in (shown.title or "").casefold()


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of the list."""

    shown: list[VisibleRow]
    count: int
    """number of all sessions that match"""
    cursor: ListCursor | None
    """None if no session follows"""


def page_of(rows: Iterable[VisibleRow], query: SessionQuery) -> SessionPage:
    """Return a page of the sessions that match. Pure."""
    key = _SORT_KEYS[query.sort]
    matching = [row for row in rows if query.matches(row)]
    after = None if query.cursor is None else query.cursor.key
    following = [row for row in matching if after is None or key(row) > after]
    some = nsmallest(query.limit + 1, following, key=key)
    shown = some[: query.limit]
    cursor = ListCursor(query.sort, key(shown[-1])) if len(some) > query.limit else None
    return SessionPage(shown, len(matching), cursor)


def facets_json(rows: Collection[VisibleRow], query: SessionQuery, agents: int) -> Mapping[str, JsonValue]:
    """Return `{"states": {…}, "agents": {…}}`: how many sessions each choice of a filter leaves. Pure.

    Args:
        rows: the sessions that the client may see.
        query: what it wants. A state is counted whatever states the query names, and an agent whatever agent.
        agents: maximum number of agents, those with the most sessions.
    """
    any_state, any_agent = replace(query, states=frozenset()), replace(query, agent=None)
    states = Counter[str](row.state for row in rows if row.state is not None and any_state.matches(row))
    served = Counter(row.row.head.agent for row in rows if any_agent.matches(row))
    return {"states": {**states}, "agents": dict(served.most_common(agents))}


def waiting_json(rows: Iterable[VisibleRow], limit: int) -> Mapping[str, JsonValue]:
    """Return `{"count": …, "waiting": […]}`: the calls that wait for a person, the longest wait first. Pure.

    A call that was decided is listed until a worker has applied the decision, and not counted.
    """
    calls = [
        (call.since or 0.0, shown, call) for shown in rows if Lane.EXTENSION in shown.lanes for call in shown.row.waits
    ]
    calls.sort(key=lambda each: each[0])
    return {
        "count": sum(call.decision is None for _, _, call in calls),
        "waiting": [
            {
                "session": shown.row.head.session,
                "title": shown.title,
                "agent": shown.row.head.agent,
                "turnId": {"loopId": call.event.turn_id.loop_id, "turnIndex": call.event.turn_id.turn_index},
                "toolCallId": call.event.tool_call_id,
                "toolName": call.event.tool_name,
                "why": call.event.why,
                "since": call.since,
                "position": call.position or None,
                "decision": decision_json(call.decision),
            }
            for _, shown, call in calls[:limit]
        ],
    }


def decision_json(command: Command | None) -> dict[str, JsonValue] | None:
    """Return `{"decision", "by", "position"}`: what a command decides about a call. None if there is no command."""
    control = None if command is None else command.control
    if command is None or not isinstance(control, Approve | Deny):
        return None
    return {
        "decision": "approve" if isinstance(control, Approve) else "deny",
        "by": control.by,
        "position": command.position,
    }


def failure_json(work: FailedWork | None) -> dict[str, JsonValue] | None:
    """Return `{"group", "attempts", "reason", "since"}` of failed work; `since` is null unless it is a dead letter."""
    if work is None:
        return None
    since = work.time if work.is_dead else None
    return {"group": work.group, "attempts": work.attempts, "reason": work.reason, "since": since}


def _by_activity(shown: VisibleRow) -> _SortKey:
    return False, -shown.row.head.updated, shown.row.head.session


def _by_created(shown: VisibleRow) -> _SortKey:
    return False, -shown.row.head.created, shown.row.head.session


def _by_title(shown: VisibleRow) -> _SortKey:
    return shown.title is None, (shown.title or "").casefold(), shown.row.head.session


def _by_cost(shown: VisibleRow) -> _SortKey:
    return shown.cost is None, -(shown.cost or 0.0), shown.row.head.session


_SORT_KEYS: Mapping[Sort, Callable[[VisibleRow], _SortKey]] = {
    "activity": _by_activity,
    "created": _by_created,
    "title": _by_title,
    "cost": _by_cost,
}


# The endpoints of what a token allows, and of the sessions.

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
    await confirm(request.scope)
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
