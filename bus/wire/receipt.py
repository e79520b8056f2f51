"""The outcome of a publish: a receipt, or the error with which the log refused the publish."""

from typing import NamedTuple

from lanebus.bus.errors import (
    Conflict,
    Fenced,
    LogRolledBack,
    MessageTooLarge,
    OverLimit,
    SessionClosed,
    SessionErased,
    WrongAgent,
)
from lanebus.bus.wire.envelope import Cursor

__all__ = ("REFUSALS", "Outcome", "Receipt")


class Receipt(NamedTuple):
    """The positions of the messages of one publish."""

    positions: tuple[int, ...]
    """one position for each message, in order"""
    is_duplicate: bool = False
    """whether nothing was appended, because an earlier publish had the same key. `positions` are then those of the
    earlier publish"""
    incarnation: str = ""
    """incarnation of the log to which the messages were appended, see `Cursor`"""

    @property
    def position(self) -> int:
        """The position of the last message."""
        return self.positions[-1]

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen these messages and all earlier messages."""
        return Cursor(self.position, 0, self.incarnation)


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
