"""Principals: the persons and programs that send requests."""

from dataclasses import dataclass

from lanebus.bus.errors import InvalidArgument, require_text
from lanebus.bus.messages.lanes import Lane
from lanebus.handlers.access.rights import check_actions, check_agents, check_lanes, check_number, check_sessions

__all__ = ("ALL", "BOTH_LANES", "READ", "Principal", "matches")

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
