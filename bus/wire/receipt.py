"""The outcome of a publish: a receipt, or the error with which the log refused the publish."""

from typing import NamedTuple

from lanebus.bus.errors import (
    Conflict,
    Fenced,
    InvalidArgument,
    LogRolledBack,
    MessageTooLarge,
    OverLimit,
    SessionClosed,
    SessionErased,
    WrongAgent,
)
from lanebus.bus.wire.envelope import Cursor

__all__ = ("REFUSALS", "Expected", "Outcome", "Receipt", "cursor_of")


class Receipt(NamedTuple):
    """The positions of the messages of one publish."""

    positions: tuple[int, ...]
    """one position for each message, in order"""
    is_duplicate: bool = False
    """whether nothing was appended, because an earlier publish had the same key. `positions` are then those of the
    earlier publish"""
    incarnation: str = ""
    """incarnation of the log to which the messages were appended, see `Cursor`"""
    proof: str = ""
    """proof of the last message's entry, see `Cursor`"""

    @property
    def position(self) -> int:
        """The position of the last message."""
        return self.positions[-1]

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen these messages and all earlier messages."""
        return Cursor(self.position, 0, self.incarnation, self.proof)


Expected = Cursor | Receipt | str | int
"""The end of a session that a caller saw: a cursor, its text, the receipt of the last publish, or a plain position. A
plain position names nothing across a rollback: other entries may have taken the places of those that the caller
saw."""

REFUSALS = (Conflict, Fenced, WrongAgent, SessionClosed, SessionErased, OverLimit, MessageTooLarge, LogRolledBack)

Outcome = (
    Receipt
    | Conflict
    | Fenced
    | WrongAgent
    | SessionClosed
    | SessionErased
    | OverLimit
    | MessageTooLarge
    | LogRolledBack
)
"""The result of `Session.try_publish`: a receipt, or the error with which the log refused the publish."""


def cursor_of(expected: Expected | None) -> Cursor | None:
    """Return the cursor that a caller passed as `expected`; None for None.

    Raises:
        InvalidCursor: the text is not a cursor.
        InvalidArgument: `expected` has another type, or a negative number.
    """
    match expected:
        case None | Cursor():
            return None if expected is None else Cursor.of(expected, "expected")
        case Receipt():
            return expected.cursor
        case str():
            return Cursor.of(expected, "expected")
        case int() if expected >= 0 and not isinstance(expected, bool):
            return Cursor(expected)
        case _ if isinstance(getattr(expected, "cursor", None), Cursor):  # an envelope, a notice
            raise InvalidArgument("expected", expected, "pass its `cursor`")
        case _:
            raise InvalidArgument("expected", expected, "pass a cursor, its text, a receipt, or START if it is empty")
