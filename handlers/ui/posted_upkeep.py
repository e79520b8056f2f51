"""Decode the requests that fork, trim, close and reopen a session."""

from typing import NamedTuple

from pydantic import JsonValue

from lanebus.bus.errors import DecodeError
from lanebus.handlers.ui.posted import check_key
from lanebus.handlers.ui.posted_content import check_fields

__all__ = ("PostedFork", "PostedReason", "PostedTrim", "read_empty", "read_fork", "read_reason", "read_trim")

_FURTHEST = 10**15
"""a position that no session reaches"""


class PostedFork(NamedTuple):
    """A client's request to fork a session."""

    position: int | None
    """last shared position; None means the end"""
    id: str | None
    agent: str | None
    key: str | None


class PostedTrim(NamedTuple):
    """A client's request to delete a session's oldest entries."""

    before: int
    force: bool
    is_dry_run: bool


class PostedReason(NamedTuple):
    """A client's request to close or reopen a session."""

    reason: str
    key: str | None


def read_fork(body: JsonValue) -> PostedFork:
    """Decode a fork `{"position"?: …, "id"?: …, "agent"?: …, "key"?: …}`.

    Raises:
        DecodeError: the body is not a fork, has other fields, or a field's value is not allowed.
    """
    fields = _fields(body, ("position", "id", "agent", "key"), 'fork with {"position": …}, "id", "agent" and "key"')
    position = None if fields.get("position") is None else _position(fields, "position")
    name, agent, key = (check_key(fields.get(field), field) for field in ("id", "agent", "key"))
    if name is not None and key is not None:
        raise DecodeError("key", "leave it out: an id with a position makes a repeat safe too")
    if key is not None and position is None:
        raise DecodeError("position", "name it, so that a repeat with the same key is of the same fork")
    return PostedFork(position, name, agent, key)


def read_trim(body: JsonValue) -> PostedTrim:
    """Decode a trim `{"before": …, "force"?: …, "dryRun"?: …}`.

    Raises:
        DecodeError: the body is not a trim, has other fields, or a field's value is not allowed.
    """
    fields = _fields(body, ("before", "force", "dryRun"), 'trim with {"before": …}, "force" and "dryRun"')
    return PostedTrim(_position(fields, "before"), _flag(fields, "force"), _flag(fields, "dryRun"))


def read_reason(body: JsonValue) -> PostedReason:
    """Decode `{"reason"?: …, "key"?: …}`.

    Raises:
        DecodeError: the body has other fields, or a field's value is not allowed.
    """
    fields = _fields(body, ("reason", "key"), 'give {"reason": …} and "key", or {}')
    return PostedReason(check_key(fields.get("reason"), "reason") or "", check_key(fields.get("key"), "key"))


def read_empty(body: JsonValue) -> None:
    """Check that the body is `{}`. Raises DecodeError if it is not."""
    if body != {}:
        raise DecodeError("", "post {}")


def _fields(body: JsonValue, allowed: tuple[str, ...], advice: str) -> dict[str, JsonValue]:
    if not isinstance(body, dict):
        raise DecodeError("", advice)
    check_fields(body, allowed)
    return body


def _position(fields: dict[str, JsonValue], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _FURTHEST:
        raise DecodeError(name, "must be a position: a whole number from 0")
    return value


def _flag(fields: dict[str, JsonValue], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise DecodeError(name, "must be true or false")
    return value
