"""A message in its place: which session, where in it, when and by whom."""

import re
from typing import NamedTuple, Self

from bus.errors import InvalidCursor, MessageError
from bus.messages.delta import Delta
from bus.messages.lanes import Lane
from bus.messages.reading import Publishable

__all__ = ("START", "Cursor", "Envelope", "Unreadable")

_CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class Cursor(NamedTuple):
    """Where a reader is: it has seen everything up to and with this place. Cursors compare as numbers, never as text.

    As text it is a stream id, `<position>-<delta>`.
    """

    position: int
    """of the last entry seen; 0 is before the first"""
    delta: int = 0
    """of the last live delta seen below that position; 0 is before the first"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The cursor that `str()` wrote; a bare position is one too.

        Raises:
            InvalidCursor: the text is neither.
        """
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise InvalidCursor(text)
        return cls(int(match[1]), int(match[2] or 0))

    def __str__(self) -> str:
        return f"{self.position}-{self.delta}"


START = Cursor(0)
"""Before the first entry: reading after it gives everything."""


class Unreadable(NamedTuple):
    """What stands in a message's place when its entry cannot be believed or read: shown, never skipped in silence."""

    error: MessageError
    raw: bytes
    """the entry's body as it is, or b"" where it has none"""


class Envelope(NamedTuple):
    """What was said, and where. A live delta stands below the newest position and has a `delta` of 1 or more."""

    session: str
    position: int
    """its place in the session, over both lanes, from 1 without gaps"""
    lane: Lane
    message: Publishable | Delta | Unreadable
    time: float
    """seconds UTC by the server's clock"""
    producer: str
    """who appended it"""
    delta: int = 0

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this and nothing after it."""
        return Cursor(self.position, self.delta)
