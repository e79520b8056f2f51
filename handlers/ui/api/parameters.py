"""Query parameters of several endpoints."""

from lanebus.bus.errors import InvalidCursor
from lanebus.bus.messages.lanes import Lane
from lanebus.bus.wire.envelope import START, Cursor
from lanebus.handlers.ui.api.errors import InvalidParameter
from lanebus.handlers.ui.api.parameter import Parameter

__all__ = ("AFTER", "LANES", "UNTIL", "parse_cursor")


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
