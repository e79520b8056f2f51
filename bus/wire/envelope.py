"""Envelopes and cursors: a message with its session, position, time and producer, and the place of a reader."""

import re
from typing import NamedTuple, Self

from lanebus.bus.errors import InvalidCursor, MessageError
from lanebus.bus.messages.delta import Delta
from lanebus.bus.messages.json_reader import Publishable
from lanebus.bus.messages.lanes import Lane

__all__ = ("START", "Cursor", "DecodeFailure", "Envelope")

_CURSOR = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:\.([A-Za-z0-9_-]{1,32}))?)?")


class Cursor(NamedTuple):
    """The place of a reader, who has seen everything up to and including this place.

    Compare cursors as numbers, never as text. The text form is a stream id, followed by a dot and the incarnation if
    it is known: `<position>-<delta>.<incarnation>`.
    """

    position: int
    """position of the last entry that was seen; 0 is before the first entry"""
    delta: int = 0
    """number of the last live delta that was seen at this position; 0 is before the first delta"""
    incarnation: str = ""
    """token of the log's incarnation. A log that loses its end gets a new incarnation, so that a cursor of
    lost entries is detected. A cursor with "" was not read from the log and is not checked"""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor from the text that `str()` returns, or from a plain position.

        Raises:
            InvalidCursor: the text is neither a cursor nor a position.
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
        """Return whether this cursor is after `other`. Incarnations are not compared."""
        return self[:2] > other[:2]


START = Cursor(0)
"""The cursor before the first entry: reading after it returns everything."""


class DecodeFailure(NamedTuple):
    """Stands in `Envelope.message` for an entry that cannot be read or trusted, so that readers get every position."""

    error: MessageError
    raw: bytes
    """the stored body of the entry, unchanged; b"" if the entry has no body"""


class Envelope(NamedTuple):
    """A message with its session, position, time and producer.

    A live delta has the position of the session's last entry, and a `delta` of 1 or more. A snapshot
    (`Delta.is_snapshot`) has the position and `delta` at which the follower joins.
    """

    session: str
    position: int
    """position in the session. The positions of both lanes together count from 1 without gaps"""
    lane: Lane
    message: Publishable | Delta | DecodeFailure
    time: float
    """time of the append, in seconds since 1970 UTC by the server's clock"""
    producer: str
    """name of the process that appended the message"""
    delta: int = 0
    """for a live delta, its number among the deltas at this position; 0 for an entry"""
    incarnation: str = ""
    """incarnation of the log that was read, see `Cursor`"""

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this envelope and nothing after it."""
        return Cursor(self.position, self.delta, self.incarnation)
