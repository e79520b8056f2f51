"""Query parameters of several endpoints."""

import math
from collections.abc import Collection

from pydantic import JsonValue

from lanebus.bus.digits import number_in
from lanebus.bus.errors import DecodeError, InvalidCursor
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.handlers.timestamps import milliseconds_of, parse_datetime
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.api.parameter import Parameter

__all__ = (
    "AFTER",
    "BEFORE",
    "KINDS",
    "LIMIT",
    "POSITION",
    "UNTIL",
    "count_parameter",
    "flag",
    "lanes",
    "moment",
    "parse_cursor",
    "text_parameter",
)

_LANE = "(llm|extension)"
_MOMENT: dict[str, JsonValue] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0}]}


def parse_cursor(text: str) -> Cursor:
    """Return the cursor of a text from a client. Raises InvalidCursor if it is none."""
    if not text.isascii():  # int() also reads digits of other scripts
        raise InvalidCursor(text)
    return Cursor.parse(text)


def count_parameter(name: str, description: str, *, least: int = 0) -> Parameter[int | None]:
    """Return a parameter that is a whole number of at least `least`. Without it, the value is None."""

    def parse(text: str) -> int | None:
        number = number_in(text, 15)
        if number is None or number < least:
            raise InvalidParameter(name, text, f"give a whole number from {least} on")
        return number

    schema: dict[str, JsonValue] = {"type": "integer", "minimum": least, "maximum": 10**15 - 1}
    return Parameter[int | None](name=name, description=description, parse=parse, default=None, schema=schema)


def text_parameter(
    name: str, description: str, choices: Collection[str] = (), *, longest: int = 200
) -> Parameter[str | None]:
    """Return a parameter that is a text of at most `longest` characters, or one of `choices` if there are any.

    Without it, the value is None.
    """

    def parse(text: str) -> str | None:
        if choices and text not in choices:
            raise InvalidParameter(name, text, f"use one of {', '.join(choices)}")
        if len(text) > longest:
            raise InvalidParameter(name, text, f"give at most {longest} characters")
        return text

    bound: dict[str, JsonValue] = {"enum": [*choices]} if choices else {"maxLength": longest}
    schema: dict[str, JsonValue] = {"type": "string", **bound}
    return Parameter[str | None](name=name, description=description, parse=parse, default=None, schema=schema)


def moment(name: str, description: str, *, longest: int = 50) -> Parameter[float | None]:
    """Return a parameter that is a moment: ISO 8601 with a time zone, or Unix seconds. Its value is Unix seconds."""

    def parse(text: str) -> float:
        remedy = "use ISO 8601 with a time zone, such as 2026-01-31T12:00:00Z, or Unix seconds"
        try:
            seconds = float(text) if text.isascii() and len(text) <= longest else math.nan
        except ValueError:
            seconds = _seconds(text)
        if not 0 <= seconds < math.inf:
            raise InvalidParameter(name, text, remedy)
        return seconds

    return Parameter(name=name, description=description, parse=parse, default=None, schema=_MOMENT)


def _seconds(text: str) -> float:
    try:
        found = parse_datetime(text, "")
    except DecodeError:
        return math.nan
    return math.nan if found.tzinfo is None else max(milliseconds_of(found), 0) / 1000


def flag(name: str, description: str, *, default: bool) -> Parameter[bool]:
    """Return a parameter that is `true` or `false`."""

    def parse(text: str) -> bool:
        if text not in {"true", "false"}:
            raise InvalidParameter(name, text, "use true or false")
        return text == "true"

    schema: dict[str, JsonValue] = {"type": "boolean", "default": default}
    return Parameter(name=name, description=description, parse=parse, default=default, schema=schema)


def lanes(description: str, *, default: str) -> Parameter[frozenset[Lane] | None]:
    """Return the parameter `lanes`. The value None means all lanes that the token allows."""

    def parse(text: str) -> frozenset[Lane] | None:
        names = text.split(",")
        if text == "all":
            return None
        if not {*names} <= {lane.value for lane in Lane}:
            raise InvalidParameter("lanes", text, 'use "llm", "extension", both with a comma, or "all"')
        return frozenset(map(Lane, names))

    schema: dict[str, JsonValue] = {"type": "string", "pattern": f"^(all|{_LANE}(,{_LANE})*)$", "default": default}
    return Parameter(name="lanes", description=description, parse=parse, default=parse(default), schema=schema)


def _position(text: str) -> int:
    return parse_cursor(text).position


def _kinds(text: str, most: int = 100) -> tuple[str, ...]:
    kinds = tuple(text.split(","))
    if not all(kinds) or len(kinds) > most:  # each entry is compared with each kind
        raise InvalidParameter("kinds", text, f"use 1 to {most} names of kinds with commas, such as user,agent.*")
    return kinds


_CURSOR: dict[str, JsonValue] = {
    "type": "string",
    "pattern": r"^[0-9]{1,18}(-[0-9]{1,18}(\.[A-Za-z0-9_-]{1,32}(\.[0-9a-f]{1,8})?)?)?$",
}
AFTER = Parameter(
    name="after",
    description="Start after this position or cursor. Without it, start at the beginning.",
    parse=parse_cursor,
    default=START,
    schema=_CURSOR,
)
UNTIL = Parameter[int | None](
    name="until",
    description="End at this position or cursor. Without it, end at the last entry.",
    parse=_position,
    default=None,
    schema=_CURSOR,
)
BEFORE = count_parameter(
    "before",
    "End before this position, and start so that the answer covers at most `limit` positions. These may hold no entry "
    "that `lanes` and `kinds` select: go on while `previous` is not null, even if `entries` is empty.",
    least=1,
)
LIMIT = count_parameter(
    "limit",
    "Cover at most this many positions, not entries: an answer may have fewer entries, or none, while `more` is true. "
    "A number over 1,000 counts as 1,000, and the server may cover fewer.",
    least=1,
)
KINDS = Parameter[tuple[str, ...] | None](
    name="kinds",
    description="Kinds of messages with commas: roles of the LLM lane such as `user`, kinds of the extension lane such "
    "as `agent.turn.ended`, or a prefix with a star such as `agent.*`. Kinds are open: an unknown one matches nothing. "
    "Entries that cannot be read match every kind.",
    parse=_kinds,
    default=None,
    schema={"type": "string", "pattern": "^[^,]+(,[^,]+){0,99}$"},
)
POSITION = Parameter[int | None](
    name="position",
    description="position of an entry; without it, the end of the session",
    parse=_position,
    default=None,
    schema=_CURSOR,
)
