"""One caller's publish, from the queue to its outcome. Pure."""

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
    """A publish whose caller waits for the outcome."""

    session: str
    plan: EncodedPublish
    future: asyncio.Future[Receipt]
    seconds: float
    """how long the caller waits"""
    deadline: float
    """the end of that time, on the event loop's clock"""
    turn: int = 0
    """number of this publish among all of its publisher"""
    is_sent: bool = False
    """whether it may be in the log"""
    reason: Unavailable | None = None
    """the last error that kept it from being appended; None if there was none"""

    @property
    def is_over(self) -> bool:
        """The caller has its outcome or was cancelled."""
        return self.future.done()

    def expire(self) -> None:
        """Fail: the deadline has passed."""
        if self.is_sent:
            self.fail(OutcomeUnknown(self.session, self.seconds))
        else:
            what = f"publish to session {self.session!r}: not sent within {self.seconds:g} s"
            unsent = Unavailable(f"{what}. Nothing was appended: publish again, or allow more `seconds`")
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
        """Return the positions to the caller, if it still waits.

        Args:
            first: position of the first message.
            count: number of messages.
            incarnation: of the log.
        """
        if not self.future.done():
            positions = (first,) if count == 1 else tuple(range(first, first + count))
            self.future.set_result(Receipt(positions, incarnation=incarnation))

    def fail(self, error: BusError) -> None:
        """Raise an error in the caller, if it still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, word: str, session_bytes: int | None) -> None:
        """End with an outcome other than appended: refused, or a duplicate.

        Args:
            word: the outcome, as scripts/publish.lua returns it.
            session_bytes: the limit that the publish was sent with.
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
