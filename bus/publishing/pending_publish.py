"""One caller's publish on its way, and what the server's answer means for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.errors import Conflict, Fenced, OutcomeUnknown, OverLimit, SessionClosed, SessionErased, Unavailable
from lanebus.bus.wire.receipt import Receipt

if TYPE_CHECKING:
    import asyncio

    from lanebus.bus.errors import BusError
    from lanebus.bus.publishing.encoded_publish import EncodedPublish

__all__ = ("PendingPublish",)


@dataclass(slots=True, eq=False, weakref_slot=True)
class PendingPublish:
    """One caller's publish on its way."""

    session: str
    plan: EncodedPublish
    future: asyncio.Future[Receipt]
    seconds: float
    deadline: float
    turn: int = 0
    """its place among all publishes of its publisher"""
    is_sent: bool = False
    """it may be in the log"""
    reason: Unavailable | None = None
    """why it could not be appended so far, if the server said so"""

    @property
    def is_over(self) -> bool:
        """Its caller waits no longer."""
        return self.future.done()

    def expire(self) -> None:
        """Tell the caller that its time is over."""
        if self.is_sent:
            self.fail(OutcomeUnknown(self.session, self.seconds))
        else:
            unsent = Unavailable(f"publish to session {self.session!r}: not sent in {self.seconds:g} s")
            self.fail(self.reason or unsent)

    @property
    def size_bytes(self) -> int:
        """See `EncodedPublish`."""
        return self.plan.size_bytes

    @property
    def is_control(self) -> bool:
        """See `EncodedPublish`."""
        return self.plan.is_control

    def succeed(self, first: int, count: int, incarnation: str) -> None:
        """Tell the caller the positions, if it still waits."""
        if not self.future.done():
            positions = (first,) if count == 1 else tuple(range(first, first + count))
            self.future.set_result(Receipt(positions, incarnation=incarnation))

    def fail(self, error: BusError) -> None:
        """Tell the caller why not, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, word: str, session_bytes: int | None) -> None:
        """Tell the caller that its publish was refused or a repeat.

        Args:
            session_bytes: the limit it was sent with.
        """
        conditions, rest = self.plan.conditions, word[1:]
        match word[0]:
            case "d":
                first, count, *incarnation = rest.split("+")
                if not self.future.done():
                    positions = tuple(range(int(first), int(first) + int(count)))
                    self.future.set_result(Receipt(positions, True, "".join(incarnation)))
            case "c":
                self.fail(Conflict(self.session, conditions.expected or 0, int(rest)))
            case "f":
                self.fail(Fenced(self.session, conditions.epoch or 0, int(rest)))
            case "o":
                self.fail(OverLimit(self.session, "session", int(rest), session_bytes or 0))
            case "z":
                self.fail(SessionErased(self.session))
            case _:
                self.fail(SessionClosed(self.session))
