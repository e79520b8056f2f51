"""What one producer has on its way to one session, and what its answers mean. Pure.

Appends are numbered 1, 2, 3 … in each term of the producer, see outboxes.py. A number that was sent and not
answered is in doubt: a copy of it may still come to the server, however late. It is settled first
(scripts/settle.lua), and nothing else goes to the session meanwhile. So no number ever stands for two different
appends, and no publish is sent again while a copy of it may be on its way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lanebus.bus.errors import ForgedEntry, LogRolledBack, OutcomeUnknown, Refused
from lanebus.bus.publishing.append import SessionAppend
from lanebus.bus.publishing.encoded_publish import LANE_OF
from lanebus.bus.wire.envelope import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.messages.lanes import Lane
    from lanebus.bus.publishing.pending_publish import PendingPublish

__all__ = ("Outbox", "Trouble")


@dataclass(slots=True, eq=False)
class Trouble:
    """What is to be done before a session can be published to as usual."""

    pause: float
    """seconds to wait before the next attempt"""
    retry_at: float = 0.0
    doubtful: list[SessionAppend] = field(default_factory=list[SessionAppend])
    """sent and never answered, in their order"""
    waiting: list[PendingPublish] = field(default_factory=list["PendingPublish"])
    """surely not in the log, and to be sent, in their order"""
    waiting_bytes: int = 0
    is_rolled_back: bool = False
    """the log lost its end: the next number is taken by force"""
    is_single: bool = False
    """something among what waits is refused for good: to see what, each is sent by itself"""
    floor: int | None = None
    """the term is over, and the next one has to be above this"""
    foreign: Lane | None = None
    """a foreign entry is in the way in this lane"""
    moved: int = 0
    """how often foreign entries were moved out of the way"""

    @property
    def needs_settling(self) -> bool:
        """A number has to be settled before anything else is sent."""
        return bool(self.doubtful) or self.is_rolled_back


@dataclass(slots=True, eq=False)
class Outbox:
    """The appends of one producer to one session."""

    session: str
    parked: Callable[[int], None]
    """is told how many bytes more, or less, wait here"""
    term: int
    answered: int = 0
    """highest number of the term that the server is known to have used"""
    position: int = 0
    """of the session after the last append that was answered"""
    incarnation: str = ""
    """of the log then"""
    in_flight: int = 0
    """appends that are sent and whose answers are awaited"""
    lost: LogRolledBack | None = None
    """a rollback that nobody was told of yet"""
    trouble: Trouble | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is on its way or in trouble, and nobody is to be told of anything."""
        return not self.in_flight and self.trouble is None and self.lost is None

    def send(self, publishes: list[PendingPublish]) -> SessionAppend:
        """Number publishes as the next append, which goes out now."""
        self.in_flight += 1
        for publish in publishes:
            publish.is_sent = True
        return SessionAppend(self.session, self.term, self.answered + self.in_flight, publishes)

    def answer(
        self, append: SessionAppend, reply: bytes | Refused | None, session_bytes: int | None, *, is_alone: bool = True
    ) -> Refused | None:
        """Take the answer to an append.

        Args:
            reply: as scripts/publish.lua gives it; None if the script did not come to this append.
            session_bytes: the limit it was sent with.
            is_alone: a refusal is about this append, and not about others that were sent with it.

        Returns:
            The refusal that the script met, if it met one.
        """
        self.in_flight -= 1
        if isinstance(reply, Refused):
            self._refuse(append, reply, is_alone=is_alone)
            return None
        if reply is None:
            self._return(append)
            return None
        first, second, third = (reply + b"  ").split(b" ", 2)
        if first == b"refused":
            refusal = Refused(second.decode())
            self._refuse(append, refusal, is_alone=True)
            return refusal
        if first == b"forged":
            self._return(append).foreign = LANE_OF[second.decode()]
        elif first == b"stale":
            self._return(append)
            self._end_term(int(second))
        elif first == b"gap":
            last, position = int(second), int(third)
            is_known = self.trouble is not None and self.trouble.is_rolled_back
            if is_known or self.answered <= last < append.number:  # an append before it was refused: nothing is lost
                self._return(append)
            else:
                self._roll_back(append, last, position)
        else:
            incarnation, _, outcomes = third[:-2].partition(b" ")
            self.answered, self.incarnation = append.number, incarnation.decode()
            self.position = append.settle(int(second), self.incarnation, outcomes, session_bytes)
            self._forget_foreign()
        return None

    def lose(self, append: SessionAppend) -> None:
        """No answer to an append will come; it may be in the log, or come to it later."""
        self.in_flight -= 1
        self._troubled().doubtful.append(append)

    def park(self, publish: PendingPublish) -> None:
        """Have a publish wait behind those that are in trouble."""
        trouble = self._troubled()
        trouble.waiting.append(publish)
        trouble.waiting_bytes += publish.size_bytes
        self.parked(publish.size_bytes)

    # --- in trouble -----------------------------------------------------------------------------------------------

    def to_settle(self) -> tuple[int, int, bool]:
        """The first and the last number that have to be settled, and whether the last is to be taken by force."""
        trouble = self._troubled()
        last = max([self.answered, *(append.number for append in trouble.doubtful)])
        if trouble.is_rolled_back:  # beyond all that a late copy could have
            return last + 1, last + 1, True
        return self.answered + 1, last, False

    def settled(self, replies: Sequence[bytes], session_bytes: int | None) -> None:
        """Take the answer of scripts/settle.lua."""
        trouble = self._troubled()
        was_forced, trouble.is_rolled_back = trouble.is_rolled_back, False
        doubtful = {append.number: append for append in trouble.doubtful}
        for reply in replies:
            first, second, third = reply.split(b" ", 2)
            if first == b"gap":
                self._gap(list(doubtful.values()), int(second), int(third), is_known=was_forced)
                break
            if first == b"stale":
                for publish in (each for unknown in doubtful.values() for each in unknown.publishes):
                    publish.fail(OutcomeUnknown(self.session, publish.seconds))
                self._end_term(int(second))
                break
            incarnation, _, outcomes = third.partition(b" ")
            self.answered = int(first)
            append = doubtful.pop(self.answered, None)
            if append is not None and outcomes == b"n":
                self._return(append)
            elif append is not None:
                words = b" ".join([b"z"] * len(append.publishes)) if outcomes == b"z" else outcomes
                self.incarnation = incarnation.decode()
                self.position = append.settle(int(second), self.incarnation, words, session_bytes)
        else:
            for append in doubtful.values():  # a forced number is beyond theirs
                self._return(append)
        trouble.doubtful.clear()

    def _gap(self, doubtful: list[SessionAppend], last: int, position: int, *, is_known: bool) -> None:
        self.answered = max([self.answered, *(append.number for append in doubtful)])
        if doubtful and not is_known:
            first, *doubtful = doubtful
            self._roll_back(first, last, position)
        for append in doubtful:
            self._return(append)
        self.answered = max(self.answered, last)
        self._troubled().is_rolled_back = True

    @property
    def cursor(self) -> Cursor:
        """The end of the session after the last append that was answered."""
        return Cursor(self.position, 0, self.incarnation)

    def begin(self, term: int, position: int) -> None:
        """Go on in a new term, after a look at what the last one has left.

        Args:
            position: up to which the log has what it had when the last append was answered.
        """
        if position < self.position:
            self.keep(LogRolledBack(self.session, self.position, position))
        self.term, self.answered, self.position = term, 0, position
        trouble = self._troubled()
        trouble.floor = None
        trouble.is_rolled_back = False

    def next_batch(self, count: int, limit_bytes: int) -> list[PendingPublish]:
        """Take some of what waits and is still wanted, at least one if there is any."""
        trouble = self._troubled()
        waiting = [publish for publish in trouble.waiting if not publish.future.done()]
        if waiting and self.tell(waiting[0]):
            del waiting[0]
        batch: list[PendingPublish] = []
        for publish in waiting[: 1 if trouble.is_single else count]:
            if batch and limit_bytes < publish.size_bytes:
                break
            limit_bytes -= publish.size_bytes
            batch.append(publish)
        self._wait(waiting[len(batch) :])
        return batch

    def prune(self) -> None:
        """Forget what nobody waits for any more and is surely not in the log."""
        self._wait([publish for publish in self._troubled().waiting if not publish.future.done()])

    def give_way(self, attempts: int, ids: Sequence[str]) -> None:
        """Foreign entries were moved out of the way; what they are in the way of again and again is given up."""
        trouble = self._troubled()
        lane, trouble.foreign = trouble.foreign, None
        trouble.moved += 1
        if trouble.moved > attempts and trouble.waiting:
            trouble.moved = 0
            error = ForgedEntry(f"{self.session}:{lane}", ids[0] if ids else "", f"in the way; set aside: {list(ids)}")
            first, *others = trouble.waiting
            first.fail(error)
            self._wait(others)

    def is_out_of_trouble(self) -> bool:
        """See whether all is as usual again; True if it is."""
        trouble = self.trouble
        if trouble is None:
            return True
        if self.in_flight or trouble.needs_settling or (trouble.foreign, trouble.floor) != (None, None):
            return False
        if any(not publish.future.done() for publish in trouble.waiting):
            return False
        self._wait([])
        self.trouble = None
        return True

    def tell(self, publish: PendingPublish) -> bool:
        """Tell the caller of a publish of a rollback that nobody was told of; False if there is none."""
        if self.lost is None:
            return False
        error, self.lost = self.lost, None
        publish.fail(error)
        return True

    def keep(self, error: LogRolledBack) -> None:
        """Keep a rollback until somebody is told of it."""
        if self.lost is not None:
            error = LogRolledBack(self.session, max(error.seen, self.lost.seen), min(error.found, self.lost.found))
        self.lost = error

    # --- what answers mean ----------------------------------------------------------------------------------------

    def _troubled(self) -> Trouble:
        if self.trouble is None:
            self.trouble = Trouble(0.0)
        return self.trouble

    def _return(self, append: SessionAppend, reason: Refused | None = None) -> Trouble:
        """It was not appended, and no copy of it is on its way: what is still wanted of it waits to be sent again."""
        trouble = self._troubled()
        for publish in append.publishes:
            publish.is_sent, publish.reason = False, reason or publish.reason
        returned = [publish for publish in append.publishes if not publish.future.done()]
        self._wait(sorted([*trouble.waiting, *returned], key=_turn))
        return trouble

    def _wait(self, waiting: list[PendingPublish]) -> None:
        trouble = self._troubled()
        size_bytes = sum(publish.size_bytes for publish in waiting)
        self.parked(size_bytes - trouble.waiting_bytes)
        trouble.waiting, trouble.waiting_bytes = waiting, size_bytes

    def _refuse(self, append: SessionAppend, refusal: Refused, *, is_alone: bool) -> None:
        if refusal.is_transient or refusal.code == "NOSCRIPT" or not is_alone:
            self._return(append, refusal)
        elif len(append.publishes) > 1:
            self._return(append, refusal).is_single = True
        else:
            append.publishes[0].fail(refusal)
            self._forget_foreign()
            if self.in_flight:  # those behind it leave its number out: nothing is sent before they are answered
                self._troubled()

    def _end_term(self, floor: int) -> None:
        trouble = self._troubled()
        trouble.floor = max(trouble.floor or 0, floor)

    def _forget_foreign(self) -> None:
        if self.trouble is not None:
            self.trouble.moved = 0

    def _roll_back(self, append: SessionAppend, last: int, position: int) -> None:
        error = LogRolledBack(self.session, self.position, position)
        self.answered, self.position, self.incarnation = max(self.answered, last), position, ""
        self._troubled().is_rolled_back = True
        waits = [publish for publish in append.publishes if not publish.future.done()]
        for publish in waits:
            publish.fail(error)
        if not waits:
            self.keep(error)


def _turn(publish: PendingPublish) -> int:
    return publish.turn
