"""Search, filter, sort and page the sessions of an index. Pure, apart from the reading of a cursor's text."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Literal, NamedTuple

from pydantic import JsonValue

from lanebus.bus.groups.failed_work import FailedWork
from lanebus.bus.messages.control import Approve, Deny
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.projections.agent_status import Command
from lanebus.handlers.projections.cards import CardState
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.session_index import IndexRow

__all__ = (
    "SORTS",
    "ListCursor",
    "SessionPage",
    "SessionQuery",
    "Sort",
    "VisibleRow",
    "decision_json",
    "facets_json",
    "failure_json",
    "page_of",
    "waiting_json",
)

Sort = Literal["activity", "created", "title", "cost"]
SORTS: tuple[Sort, ...] = ("activity", "created", "title", "cost")

_Key = tuple[bool, float | str, str]
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
        """Number of calls that nobody has approved or denied, if the client may read it."""
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
    key: _Key

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
    key = _KEYS[query.sort]
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


def _activity(shown: VisibleRow) -> _Key:
    return False, -shown.row.head.updated, shown.row.head.session


def _created(shown: VisibleRow) -> _Key:
    return False, -shown.row.head.created, shown.row.head.session


def _title(shown: VisibleRow) -> _Key:
    return shown.title is None, (shown.title or "").casefold(), shown.row.head.session


def _cost(shown: VisibleRow) -> _Key:
    return shown.cost is None, -(shown.cost or 0.0), shown.row.head.session


_KEYS: Mapping[Sort, Callable[[VisibleRow], _Key]] = {
    "activity": _activity,
    "created": _created,
    "title": _title,
    "cost": _cost,
}
