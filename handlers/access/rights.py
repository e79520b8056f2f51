"""Check the rights of a principal: a wrong type or pattern would grant too much, or nothing at all."""

from collections.abc import Callable
from difflib import get_close_matches
from math import isfinite
from typing import cast

from lanebus.bus.errors import InvalidArgument, InvalidName, InvalidSessionId
from lanebus.bus.messages.control import CONTROLS
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.keys import check_agent, check_session_id

__all__ = (
    "ACTIONS",
    "check_actions",
    "check_agents",
    "check_known_actions",
    "check_lanes",
    "check_number",
    "check_sessions",
)

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
