"""Query parameters of several endpoints."""

import re
from collections.abc import Collection

from pydantic import JsonValue

from lanebus.bus.errors import InvalidCursor
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.api.parameter import Parameter

__all__ = ("AFTER", "LANES", "POSITION", "UNTIL", "count_parameter", "parse_cursor", "text_parameter")


_WHOLE = re.compile(r"[0-9]{1,15}")


def parse_cursor(text: str) -> Cursor:
    """Return the cursor of a text from a client. Raises InvalidCursor if it is none."""
    if not text.isascii():  # int() also reads digits of other scripts
        raise InvalidCursor(text)
    return Cursor.parse(text)


def _position(text: str) -> int | None:
    return parse_cursor(text).position


def _lanes(text: str) -> frozenset[Lane] | None:
    names = text.split(",")
    if not {*names} <= {lane.value for lane in Lane}:
        raise InvalidParameter("lanes", text, 'use "llm", "extension" or both with a comma')
    return frozenset(map(Lane, names))


AFTER = Parameter(
    name="after", description="position or cursor after which to start", parse=parse_cursor, default=START
)
UNTIL = Parameter[int | None](
    name="until", description="last position or cursor; without it, the end", parse=_position, default=None
)
LANES = Parameter[frozenset[Lane] | None](
    name="lanes",
    description="`llm`, `extension`, or both with a comma; without it, the lanes that the token allows",
    parse=_lanes,
    default=None,
)
POSITION = Parameter[int | None](
    name="position",
    description="position of an entry; without it, the end of the session",
    parse=_position,
    default=None,
)


def count_parameter(name: str, description: str, *, least: int = 0) -> Parameter[int | None]:
    """Return a parameter that is a whole number of at least `least`. Without it, the value is None."""

    def parse(text: str) -> int | None:
        if _WHOLE.fullmatch(text) is None or int(text) < least:
            raise InvalidParameter(name, text, f"give a whole number from {least} on")
        return int(text)

    schema: dict[str, JsonValue] = {"type": "integer", "minimum": least}
    return Parameter[int | None](name=name, description=description, parse=parse, default=None, schema=schema)


def text_parameter(name: str, description: str, choices: Collection[str] = ()) -> Parameter[str | None]:
    """Return a parameter that is a text, or one of `choices` if there are any. Without it, the value is None."""

    def parse(text: str) -> str | None:
        if choices and text not in choices:
            raise InvalidParameter(name, text, f"use one of {', '.join(choices)}")
        return text

    schema: dict[str, JsonValue] = {"type": "string", **({"enum": [*choices]} if choices else {})}
    return Parameter[str | None](name=name, description=description, parse=parse, default=None, schema=schema)
