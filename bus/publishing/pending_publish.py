"""One caller's publish, from the queue to its outcome. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.errors import (
    Conflict,
    Fenced,
    LogRolledBack,
    OutcomeUnknown,
    OverLimit,
    SessionClosed,
    SessionErased,
    Unavailable,
    WrongAgent,
)
from lanebus.bus.log.head import start_of
from lanebus.bus.wire.envelope import START
from lanebus.bus.wire.receipt import Receipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

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
    """longest time that the caller waits"""
    deadline: float
    """when `seconds` are over, on the event loop's clock"""
    turn: int = 0
    """number of this publish in the order in which its publisher received all publishes"""
    is_sent: bool = False
    """whether the publish may be in the log"""
    reason: BusError | None = None
    """the last error that prevented the append; None if there was no error"""
    agent: str = ""
    """the agent that the session gets if this is its first publish"""
    cause: Callable[[], Unavailable | None] | None = None
    """returns why the server ended, if it is known"""

    @property
    def is_over(self) -> bool:
        """Whether the caller has its outcome or was cancelled."""
        return self.future.done()

    def expire(self) -> None:
        """Fail the publish because its deadline has passed."""
        cause = self.cause() if self.cause is not None else None
        if self.is_sent:
            self.fail(OutcomeUnknown(self.session, self.seconds, cause=cause))
        else:
            what = f"publish to session {self.session!r}: not sent within {self.seconds:g} s"
            unsent = Unavailable(f"{what}; nothing was appended", "publish again, or allow more `seconds`")
            self.fail(cause or self.reason or unsent)

    @property
    def size_bytes(self) -> int:
        """See `EncodedPublish`."""
        return self.plan.size_bytes

    @property
    def is_control(self) -> bool:
        """See `EncodedPublish`."""
        return self.plan.is_control

    def succeed(self, first: int, count: int, incarnation: str, proof: str) -> None:
        """Return the positions of the messages to the caller, if the caller still waits.

        Args:
            first: position of the first message.
            count: number of messages.
            incarnation: incarnation of the log.
            proof: proof of the last message's entry; "" if unknown.
        """
        if not self.future.done():
            positions = (first,) if count == 1 else tuple(range(first, first + count))
            self.future.set_result(Receipt(positions, incarnation=incarnation, proof=proof))

    def fail(self, error: BusError) -> None:
        """Raise `error` in the caller, if the caller still waits."""
        if not self.future.done():
            self.future.set_exception(error)

    def end(self, word: str, session_bytes: int | None) -> None:
        """Give the caller the outcome of a publish that was refused or is a duplicate.

        Args:
            word: the outcome, as scripts/publish.lua returns it.
            session_bytes: the `PublishLimits.session_bytes` that the publish was sent with.
        """
        conditions, rest = self.plan.conditions, word[1:]
        match word[0]:
            case "d":
                first, count, incarnation, proof = (*rest.split("+"), "", "")[:4]
                if not self.future.done():
                    positions = tuple(range(int(first), int(first) + int(count)))
                    self.future.set_result(Receipt(positions, True, incarnation, proof))
            case "c":
                self.fail(Conflict(self.session, (conditions.expected or START).position, int(rest)))
            case "r":
                expected = conditions.expected or START
                found = max(start_of(expected.incarnation), 0)
                self.fail(LogRolledBack(self.session, expected.position, found, of_expected=True))
            case "f":
                self.fail(Fenced(self.session, conditions.epoch or 0, int(rest)))
            case "g":
                self.fail(WrongAgent(self.session, conditions.agent or "", rest))
            case "o":
                self.fail(OverLimit(self.session, "session", int(rest), session_bytes or 0))
            case "z":
                self.fail(SessionErased(self.session))
            case _:
                self.fail(SessionClosed(self.session))
