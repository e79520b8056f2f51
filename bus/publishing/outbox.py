"""Number the appends of one producer to one session, and interpret the server's replies. Pure.

Appends are numbered 1, 2, 3 … in each term of the producer; see outboxes.py. An append that was sent and not answered
is doubtful: a copy of it may still reach the server. The numbers of doubtful appends are settled (scripts/settle.lua)
before anything else is sent to the session. So a number never stands for two different appends, and no publish is sent
again while a copy of it may be in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lanebus.bus.errors import ForgedEntry, HeadMissing, LogRolledBack, OutcomeUnknown, Refused, SessionDamaged
from lanebus.bus.publishing.append import SessionAppend
from lanebus.bus.publishing.encoded_publish import LANE_OF
from lanebus.bus.publishing.trouble import Trouble
from lanebus.bus.servers.replies import refusal_of
from lanebus.bus.wire.envelope import START, Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.publishing.pending_publish import PendingPublish

__all__ = ("Outbox",)


@dataclass(slots=True, eq=False)
class Outbox:
    """Numbers the appends of one producer to one session, and interprets the server's replies."""

    session: str
    parked: Callable[[int], None]
    """called with the change of `Trouble.waiting_bytes`"""
    term: int
    """current term of the producer"""
    answered: int = 0
    """highest number of an append in this term whose outcome is known"""
    cursor: Cursor = START
    """cursor of the session's end after the last answered append"""
    in_flight: int = 0
    """number of appends sent and not answered"""
    lost: LogRolledBack | None = None
    """a rollback that was not reported to any caller yet; None if there is no such rollback"""
    trouble: Trouble | None = None
    agent: str = ""
    """the agent of the session, as far as this process knows; "" if nothing was sent yet"""

    @property
    def is_idle(self) -> bool:
        """Whether no publish is in flight or waiting, and no rollback has to be reported."""
        return not self.in_flight and self.trouble is None and self.lost is None

    def send(self, publishes: list[PendingPublish]) -> SessionAppend:
        """Return the next append, which holds `publishes`. The caller must send the append at once."""
        self.in_flight += 1
        for publish in publishes:
            publish.is_sent = True
        agent = self.agent = self.agent or publishes[0].agent
        return SessionAppend(self.session, self.term, self.answered + self.in_flight, publishes, agent)

    def answer(
        self, append: SessionAppend, reply: bytes | Refused | None, session_bytes: int | None, *, is_alone: bool = True
    ) -> Refused | None:
        """Handle the reply to an append.

        Args:
            append: the append that was answered.
            reply: the reply of scripts/publish.lua; None if the script stopped before this append.
            session_bytes: the `PublishLimits.session_bytes` that the append was sent with.
            is_alone: whether a refusal concerns only this append. False if the same command held other appends.

        Returns:
            The error with which the server refused the append, if the script's reply holds such an error; otherwise
            None.
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
            refusal = refusal_of(reply.decode(errors="replace").partition(" ")[2])
            self._refuse(append, refusal, is_alone=True)
            return refusal
        if first == b"damaged":
            self._end(append, self._damage(reply))
        elif first == b"forged":
            self._return(append).foreign = LANE_OF[second.decode()]
        elif first == b"stale":
            self._return(append)
            self._end_term(int(second))
        elif first == b"agent":
            self._return(append)
            self.agent = second.decode()
        elif first == b"gap":
            last, position = int(second), int(third)
            is_known = self.trouble is not None and self.trouble.is_rolled_back
            if is_known or self.answered <= last < append.number:  # the gap is a refused append: the log lost nothing
                self._return(append)
            else:
                self._roll_back(append, last, position)
        else:
            written, _, outcomes = third[:-2].partition(b" ")
            self.answered = append.number
            self._settle(append, second, written, outcomes, session_bytes)
            self.agent = append.agent
            self._forget_foreign()
        return None

    def lose(self, append: SessionAppend) -> None:
        """Mark an append as doubtful: its reply was lost, so the append may be in the log or arrive there later."""
        self.in_flight -= 1
        self._begin_trouble().doubtful.append(append)

    def park(self, publish: PendingPublish) -> None:
        """Add a publish at the end of the waiting publishes."""
        trouble = self._begin_trouble()
        trouble.waiting.append(publish)
        trouble.waiting_bytes += publish.size_bytes
        self.parked(publish.size_bytes)

    # --- recovery -----------------------------------------------------------------------------------------------

    def to_settle(self) -> tuple[int, int, bool]:
        """Return the first and the last append number to settle with scripts/settle.lua, and whether to force the last.

        Settling finds the outcome of each append. If an append did not arrive, its number is marked as used, so that
        late copies are refused. A forced number is marked as used even if earlier numbers are missing.
        """
        trouble = self._begin_trouble()
        last = max([self.answered, *(append.number for append in trouble.doubtful)])
        if trouble.is_rolled_back:  # force a number above that of any late copy of an append
            return last + 1, last + 1, True
        return self.answered + 1, last, False

    def settled(self, replies: Sequence[bytes], session_bytes: int | None) -> None:
        """Handle the replies of scripts/settle.lua.

        Args:
            replies: one reply for each settled number.
            session_bytes: the `PublishLimits.session_bytes` that the appends were sent with.
        """
        trouble = self._begin_trouble()
        if replies[0].startswith(b"damaged "):  # settled once the value is repaired; until then the outcome is unknown
            for publish in trouble.waiting:
                publish.fail(self._damage(replies[0]))
            return
        was_forced, trouble.is_rolled_back = trouble.is_rolled_back, False
        doubtful = {append.number: append for append in trouble.doubtful}
        for reply in replies:
            first, second, third = reply.split(b" ", 2)
            if first == b"gap":
                self._gap(list(doubtful.values()), int(second), int(third), is_known=was_forced)
                break
            if first == b"stale":
                for publish in (each for unknown in doubtful.values() for each in unknown.publishes):
                    publish.fail(OutcomeUnknown(self.session, publish.seconds, is_forgotten=True))
                self._end_term(int(second))
                break
            written, _, outcomes = third.partition(b" ")
            self.answered = int(first)
            append = doubtful.pop(self.answered, None)
            if append is not None and outcomes == b"n":
                self._return(append)
            elif append is not None:
                words = b" ".join([b"z"] * len(append.publishes)) if outcomes == b"z" else outcomes
                self._settle(append, second, written, words, session_bytes)
        else:
            for append in doubtful.values():  # after the forced number, the server refuses these lower numbers
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
        self._begin_trouble().is_rolled_back = True

    @property
    def position(self) -> int:
        """The position of the session after the last answered append."""
        return self.cursor.position

    def begin(self, term: int, position: int) -> None:
        """Begin a new term.

        Args:
            term: number of the new term.
            position: last position up to which the log is unchanged since the last answered append. If it is lower than
                `Outbox.position`, the log was rolled back.
        """
        if position < self.position:
            self.keep(LogRolledBack(self.session, self.position, position))
            self.cursor = Cursor(position)
        self.term, self.answered = term, 0
        trouble = self._begin_trouble()
        trouble.floor = None
        trouble.is_rolled_back = False

    def next_batch(self, count: int, limit_bytes: int) -> list[PendingPublish]:
        """Remove the next publishes to send from the waiting publishes, and return them.

        The batch has at most `count` publishes and `limit_bytes`; a larger publish is a batch of its own. A publish
        whose caller no longer waits is dropped. If a rollback was not reported yet, the first publish fails with it and
        is left out.
        """
        trouble = self._begin_trouble()
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
        """Drop waiting publishes whose callers no longer wait."""
        self._wait([publish for publish in self._begin_trouble().waiting if not publish.future.done()])

    def give_way(self, attempts: int, ids: Sequence[str]) -> None:
        """Allow a retry of the append after foreign entries were quarantined.

        After more than `attempts` quarantines in a row, fail the first waiting publish instead.

        Args:
            attempts: how often an append is retried after a quarantine.
            ids: ids of the entries that were quarantined now.
        """
        trouble = self._begin_trouble()
        lane, trouble.foreign = trouble.foreign, None
        trouble.moved += 1
        if trouble.moved > attempts and trouble.waiting:
            trouble.moved = 0
            error = ForgedEntry(
                f"{self.session}:{lane}",
                ids[0] if ids else "",
                f"foreign entries block the append; quarantined: {list(ids)}",
            )
            first, *others = trouble.waiting
            first.fail(error)
            self._wait(others)

    def fail_waiting(self, error: HeadMissing) -> None:
        """Fail all waiting publishes: no append can succeed."""
        trouble = self._begin_trouble()
        trouble.foreign = None
        for publish in trouble.waiting:
            publish.fail(error)
        self._wait([])

    def end_trouble_if_settled(self) -> bool:
        """End the trouble if nothing is left to recover. Return whether the outbox is out of trouble."""
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
        """Fail `publish` with a rollback that was not reported yet. Return False if there is no such rollback."""
        if self.lost is None:
            return False
        error, self.lost = self.lost, None
        publish.fail(error)
        return True

    def keep(self, error: LogRolledBack) -> None:
        """Keep a rollback until it is reported to a caller."""
        if self.lost is not None:
            error = LogRolledBack(self.session, max(error.seen, self.lost.seen), min(error.found, self.lost.found))
        self.lost = error

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _begin_trouble(self) -> Trouble:
        if self.trouble is None:
            self.trouble = Trouble()
        return self.trouble

    def _return(self, append: SessionAppend, reason: Refused | None = None) -> Trouble:
        """Let the publishes of an append wait again: it was not appended, and no copy of it is in flight."""
        trouble = self._begin_trouble()
        for publish in append.publishes:
            publish.is_sent, publish.reason = False, reason or publish.reason
        returned = [publish for publish in append.publishes if not publish.future.done()]
        self._wait(sorted([*trouble.waiting, *returned], key=_order))
        return trouble

    def _wait(self, waiting: list[PendingPublish]) -> None:
        trouble = self._begin_trouble()
        size_bytes = sum(publish.size_bytes for publish in waiting)
        self.parked(size_bytes - trouble.waiting_bytes)
        trouble.waiting, trouble.waiting_bytes = waiting, size_bytes

    def _refuse(self, append: SessionAppend, refusal: Refused, *, is_alone: bool) -> None:
        if refusal.is_transient or refusal.code == "NOSCRIPT" or not is_alone:
            self._return(append, refusal)
        elif len(append.publishes) > 1:
            self._return(append, refusal).is_single = True
        else:
            self._end(append, refusal)

    def _settle(
        self, append: SessionAppend, before: bytes, written: bytes, outcomes: bytes, session_bytes: int | None
    ) -> None:
        """Give the callers of an append its outcomes. If the stored outcomes are damaged, they get that instead."""
        try:
            self.cursor = append.settle(int(before), written.decode(), outcomes, session_bytes)
        except (ValueError, IndexError):
            for publish in append.publishes:
                publish.fail(SessionDamaged(self.session, "head, answers of a producer"))

    def _damage(self, reply: bytes) -> SessionDamaged:
        return SessionDamaged(self.session, reply.decode(errors="replace").partition(" ")[2])

    def _end(self, append: SessionAppend, error: BusError) -> None:
        """Fail the publishes of an append that was not applied and would not be applied later."""
        for publish in append.publishes:
            publish.fail(error)
        self._forget_foreign()
        if self.in_flight:  # the server answers later appends with a gap: await these replies before sending more
            self._begin_trouble()

    def _end_term(self, floor: int) -> None:
        trouble = self._begin_trouble()
        trouble.floor = max(trouble.floor or 0, floor)

    def _forget_foreign(self) -> None:
        if self.trouble is not None:
            self.trouble.moved = 0

    def _roll_back(self, append: SessionAppend, last: int, position: int) -> None:
        error = LogRolledBack(self.session, self.position, position)
        self.answered, self.cursor = max(self.answered, last), Cursor(position)
        self._begin_trouble().is_rolled_back = True
        waits = [publish for publish in append.publishes if not publish.future.done()]
        for publish in waits:
            publish.fail(error)
        if not waits:
            self.keep(error)


def _order(publish: PendingPublish) -> int:
    return publish.turn
