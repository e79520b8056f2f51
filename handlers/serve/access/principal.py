"""Principals, their rights, and the question that the hook `authorize` answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import cast

from lanebus.bus.errors import InvalidArgument, InvalidName, InvalidSessionId, require_text
from lanebus.bus.messages import CONTROLS, Lane
from lanebus.bus.wire import check_agent, check_session_id

# Principals: the persons and programs that send requests.

ALL = ("*",)
"""the pattern that matches every session, agent or action"""

BOTH_LANES = frozenset(Lane)

READ = ("read",)
"""the actions that only read"""

NAME_LIMIT = 200
"""maximum number of characters of a principal's name, as of every sender's name in the log"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person or program that sends requests, with the rights that the built-in rules check.

    A pattern is a text, or a prefix and `*`: `support-*` matches every session whose id starts with `support-`.

    Raises InvalidArgument if a field has another type, or a pattern that can match nothing: a text in place of a tuple,
    a `*` that is not at the end, or a number that is not above 0.
    """

    name: str
    """recorded in the log as the sender of messages and commands; 1 to 200 printable characters"""
    actions: tuple[str, ...] = READ
    """allowed actions. An action includes those below it: `command` allows `command.abort`. `*` allows all."""
    sessions: tuple[str, ...] = ALL
    """patterns of the ids of allowed sessions"""
    agents: tuple[str, ...] = ALL
    """patterns of allowed agents. A session without an agent matches only `*`."""
    lanes: frozenset[Lane] = BOTH_LANES
    """lanes that the principal may read and write. Live deltas are of the LLM lane."""
    token_id: str = ""
    """id of the token, by which it can be revoked; "" if it has none"""
    expires: float | None = None
    """Unix time in seconds after which the principal is unknown; None means never"""
    requests_per_second: float | None = None
    """limit of requests; None means that of the server"""
    body_bytes: int | None = None
    """maximum size of a request's body in bytes; None means that of the server, which is also the highest"""

    def __post_init__(self) -> None:
        require_text("name", self.name)
        if not 0 < len(self.name) <= NAME_LIMIT or not self.name.isprintable():
            raise InvalidArgument("name", self.name, f"must be 1 to {NAME_LIMIT} printable characters")
        require_text("token_id", self.token_id)
        check_actions(self.actions)
        check_sessions(self.sessions)
        check_agents(self.agents)
        check_lanes(self.lanes)
        check_number("expires", self.expires)
        check_number("requests_per_second", self.requests_per_second)
        check_number("body_bytes", self.body_bytes, is_count=True)


def matches(patterns: tuple[str, ...], text: str) -> bool:
    """Return whether a text is one of these patterns, or starts with the part of one before its final `*`."""
    return any(text.startswith(each[:-1]) if each.endswith("*") else text == each for each in patterns)


# The question that the hook `authorize` answers, and the built-in answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    """One question: may this principal do this?"""

    principal: Principal
    action: str
    """`read.sessions`, `read.head`, `read.entries`, `read.events`, `read.media`, `read.status`, `read.call`,
    `read.turns`, `read.usage`, `read.timeline`, `read.context`, `read.request`, `read.waiting`, `read.forks`,
    `read.dead_letters`, `read.projections`, `send`, `hand_over`, `fork`, `redrive`, `trim`, `close`, `reopen`, or
    `command.` and the name of the command, such as `command.abort`"""
    session: str | None = None
    """id of the session; None for actions without a session"""
    agent: str | None = None
    """the session's agent. For a new session or a handover, the agent that it will have. None if there is none."""
    lane: Lane | None = None
    """the lane that is read or written; None if neither is"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an `AccessRequest`."""

    is_allowed: bool
    reason: str = ""
    """why not; sent to the client and logged, so it must hold no secret"""


Authorize = Callable[[AccessRequest], Awaitable[Decision]]
"""The hook. It is called for every request, and again for open streams. Raising an error refuses the request."""

_ALLOWED = Decision(True)


async def authorize_by_rights(request: AccessRequest) -> Decision:
    """Decide by the rights of the principal. This is the default; a hook of your own may call it first."""
    return decide_by_rights(request)


def decide_by_rights(request: AccessRequest) -> Decision:
    """Decide as `authorize_by_rights`, without a wait: a list asks for each of many sessions. Pure."""
    principal = request.principal
    if not _covers(principal.actions, request.action):
        return Decision(False, f"this token does not allow {request.action}")
    if request.session is not None and not matches(principal.sessions, request.session):
        return Decision(False, "this token does not allow this session")
    if request.session is not None and principal.agents != ALL and not matches(principal.agents, request.agent or ""):
        return Decision(False, "this token does not allow sessions of this agent")
    if request.lane is not None and request.lane not in principal.lanes:
        return Decision(False, f"this token does not allow the {request.lane.value} lane")
    return _ALLOWED


def _covers(granted: tuple[str, ...], action: str) -> bool:
    return any(each == "*" or f"{action}.".startswith(f"{each}.") for each in granted)


# Check the rights of a principal: a wrong type or pattern would grant too much, or nothing at all.

ACTIONS = (
    "*",
    "read",
    *(
        f"read.{what}"
        for what in (
            *("sessions", "head", "entries", "events", "media", "status", "call", "turns", "usage"),
            *("timeline", "context", "request", "waiting", "forks", "dead_letters", "projections"),
        )
    ),
    "send",
    "command",
    *(f"command.{name}" for name in CONTROLS),
    "hand_over",
    *("fork", "redrive", "trim", "close", "reopen"),
)
"""the actions that a principal can have; an action includes those below it"""


def check_sessions(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of session ids, or of prefixes of ids and `*`."""
    _check_patterns("sessions", value, check_session_id, "use letters, digits, _ and -, at most 64")


def check_agents(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of agents' names, or of prefixes of names and `*`."""
    _check_patterns("agents", value, check_agent, "use letters, digits, _, . and -, at most 64")


def check_actions(value: object) -> None:
    """Raise InvalidArgument unless the value is a tuple of texts without `*`, or of `*`. Unknown actions are accepted,
    as a token may be signed for a newer server."""
    for each in _texts("actions", value, "read"):
        if "*" in each and each != "*":
            wide = each.partition("*")[0].rstrip(".")
            advice = f"pass {wide!r}, which includes all below it" if wide in ACTIONS else "write `*` alone"
            raise InvalidArgument("actions", each, advice)


def check_known_actions(actions: tuple[str, ...]) -> None:
    """Raise InvalidArgument, with the nearest action, if one of these is no action of a server."""
    for each in actions:
        if each not in ACTIONS:
            near = get_close_matches(each, ACTIONS, 1, 0.5)
            advice = f"did you mean {near[0]!r}?" if near else f"the actions are {', '.join(ACTIONS)}"
            raise InvalidArgument("actions", each, advice)


def check_lanes(value: object) -> None:
    """Raise InvalidArgument unless the value is a frozenset of lanes."""
    advice = "pass a frozenset of lanes, such as frozenset({Lane.LLM})"
    # A `Lane` is a text, so a text that equals one would pass as a member and fail where its value is read.
    if not isinstance(value, frozenset):
        raise InvalidArgument("lanes", value, advice)
    for each in cast("frozenset[object]", value):
        if not isinstance(each, Lane):
            raise InvalidArgument("lanes", each, advice)


def check_number(name: str, value: object, *, is_count: bool = False) -> None:
    """Raise InvalidArgument unless the value is None or a finite number above 0.

    Args:
        name: the argument's name.
        value: what the caller passed.
        is_count: True also refuses fractions.
    """
    if value is None:
        return
    kinds = int if is_count else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not isfinite(value) or value <= 0:
        what = "an integer of 1 or more" if is_count else "a finite number above 0"
        raise InvalidArgument(name, value, f"pass {what}, or None")


def _check_patterns(name: str, value: object, check: Callable[[str], str], allowed: str) -> None:
    for each in _texts(name, value, "team-*"):
        if each == "*":
            continue
        text = each.removesuffix("*")
        if "*" in text:
            raise InvalidArgument(name, each, "write `*` only at the end, after a prefix, or alone")
        try:
            check(text)
        except (InvalidSessionId, InvalidName):
            raise InvalidArgument(name, each, f"it can match nothing: {allowed}, and `*` at the end") from None


def _texts(name: str, value: object, example: str) -> tuple[str, ...]:
    # A text is a sequence of texts too: its characters would be the patterns, and `*` among them allows everything.
    if isinstance(value, str):
        raise InvalidArgument(name, value, f"pass a tuple, ({value!r},)")
    if not isinstance(value, tuple):
        raise InvalidArgument(name, value, f"pass a tuple of texts, such as ({example!r},)")
    found = list[str]()
    for each in cast("tuple[object, ...]", value):
        if not isinstance(each, str):
            raise InvalidArgument(name, each, f"pass a tuple of texts, such as ({example!r},)")
        found.append(each)
    return tuple(found)
