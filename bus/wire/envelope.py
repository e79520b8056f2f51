"""A message in its place: which session, where in it, when and by whom."""

import re
from typing import NamedTuple, Self

from lanebus.bus.errors import InvalidCursor, MessageError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane

__all__ = ("START", "Cursor", "DecodeFailure", "Envelope")

_CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,32}))?)?")


class Cursor(NamedTuple):
    """Where a reader is: it has seen everything up to and with this place. Cursors compare as numbers, never as text.

    As text it is a stream id, and behind a dot the incarnation if it names one: `<position>-<delta>.<incarnation>`.
    """

    position: int
    """of the last entry seen; 0 is before the first"""
    delta: int = 0
    """of the last live delta seen below that position; 0 is before the first"""
    incarnation: str = ""
    """of the log that was read there: see `SessionHead`. A log that lost its end and grew again is told by it; "" is
    a place that was never read, and is believed"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The cursor that `str()` wrote; a bare position is one too.

        Raises:
            InvalidCursor: the text is neither.
        """
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise InvalidCursor(text)
        return cls(int(match[1]), int(match[2] or 0), match[3] or "")

    def __str__(self) -> str:
        return f"{self.id}.{self.incarnation}" if self.incarnation else self.id

    @property
    def id(self) -> str:
        """The place as a stream id."""
        return f"{self.position}-{self.delta}"

    def is_after(self, other: "Cursor") -> bool:
        """Whether this place is behind the other one; two incarnations of a log have the same places."""
        return self[:2] > other[:2]


START = Cursor(0)
"""Before the first entry: reading after it gives everything."""


class DecodeFailure(NamedTuple):
    """What stands in a message's place when its entry cannot be believed or read: shown, never skipped in silence."""

    error: MessageError
    raw: bytes
    """the entry's body as it is, or b"" where it has none"""


class Envelope(NamedTuple):
    """What was said, and where. A live delta stands below the newest position and has a `delta` of 1 or more, but for a
    snapshot, which is told again at the place where its follower joins."""

    session: str
    position: int
    """its place in the session, over both lanes, from 1 without gaps"""
    lane: Lane
    message: Publishable | Delta | DecodeFailure
    time: float
    """seconds UTC by the server's clock"""
    producer: str
    """who appended it"""
    delta: int = 0
    incarnation: str = ""
    """of the log it was read from: see `Cursor`"""

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this and nothing after it."""
        return Cursor(self.position, self.delta, self.incarnation)
