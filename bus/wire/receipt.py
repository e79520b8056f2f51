"""What a publish gave: a receipt, or the reason why not."""

from typing import NamedTuple

from lanebus.bus.errors import Conflict, Fenced, LogRolledBack, MessageTooLarge, OverLimit, SessionClosed, SessionErased
from lanebus.bus.wire.envelope import Cursor

__all__ = ("REFUSALS", "Outcome", "Receipt")


class Receipt(NamedTuple):
    """The places of the messages of one publish."""

    positions: tuple[int, ...]
    """one a message, in their order"""
    is_duplicate: bool = False
    """nothing was added: the same key was published before, and these are the positions it got then"""
    incarnation: str = ""
    """of the log they were appended to: see `Cursor`"""

    @property
    def position(self) -> int:
        """Of the last message."""
        return self.positions[-1]

    @property
    def cursor(self) -> Cursor:
        """Of a reader that has seen these messages and all before them."""
        return Cursor(self.position, 0, self.incarnation)


REFUSALS = (Conflict, Fenced, SessionClosed, SessionErased, OverLimit, MessageTooLarge, LogRolledBack)

Outcome = Receipt | Conflict | Fenced | SessionClosed | SessionErased | OverLimit | MessageTooLarge | LogRolledBack
"""All that the log can answer to a publish, as data: appended or a duplicate, or refused and nothing was added."""
