"""Number the appends of a producer, interpret the replies, and recover sessions whose appends were not answered.

Appends are numbered 1, 2, 3 … in each term of the producer; see `Outboxes`. An append that was sent and not answered
is doubtful: a copy of it may still reach the server. The numbers of doubtful appends are settled (scripts/settle.lua)
before anything else is sent to the session. So a number never stands for two different appends, and no publish is sent
again while a copy of it may be in flight.

The recovery has its own connection and handles each session separately, so that a session that keeps failing does not
delay other sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from lanebus.bus.errors import (
    CursorTrimmed,
    ForgedEntry,
    HeadMissing,
    LogRolledBack,
    OutcomeUnknown,
    Refused,
    SessionDamaged,
    StreamError,
    Unavailable,
    check_bounds,
)
from lanebus.bus.log.lineage import common_position
from lanebus.bus.log.log import LogBounds, Script, WorkBounds, send_scripts
from lanebus.bus.messages.base import Lane
from lanebus.bus.publishing.encoding import LANE_OF
from lanebus.bus.servers.calls import Backoff, refusal_of
from lanebus.bus.wire.codec import START, VERSION, Cursor, proof_from, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lanebus.bus.errors import BusError
    from lanebus.bus.log.log import Log
    from lanebus.bus.publishing.encoding import PendingPublish
    from lanebus.bus.servers.calls import Argument, Reply
    from lanebus.bus.servers.connection import Connection, Route
    from lanebus.bus.wire.keys import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishBounds:
    """How much is queued and in flight at a time, and how long publishes are retried."""

    queue_bytes: int = 64 * 1_048_576
    """maximum number of bytes of JSON that wait to be sent; further callers wait for room"""
    batch_count: int = 512
    """maximum number of publishes in a batch, so that no batch blocks the server for long"""
    batch_bytes: int = 4 * 1_048_576
    """maximum number of bytes of JSON in a batch, so that no batch blocks the server for long"""
    small_batch_count: int = 16
    """up to this many publishes are sent as one batch. More are divided into two batches of about the same
    size, which can both be in flight"""
    sessions: int = 10_000
    """maximum number of sessions for which this process remembers the number of its last append. For a forgotten
    session the process starts a new term, and does not notice if the log lost the process's earlier publishes"""
    callers_at_once: int = 64
    """maximum number of callers that are admitted to the queue, or time out, in one turn of the event loop. Ten
    thousand callers in one turn blocked the loop for 0.1 s"""
    recovery_sessions: int = 64
    """maximum number of sessions to recover in one round trip, such as after lost replies"""
    quarantine_attempts: int = 3
    """how often an append is retried after foreign entries were quarantined"""
    first_pause_seconds: float = 0.01
    """first pause before an append is retried. Each further pause is twice as long"""
    longest_pause_seconds: float = 0.5
    """longest pause before an append is retried"""
    close_seconds: float = 5.0
    """longest time that closing a bus waits for queued and sent publishes"""

    def __post_init__(self) -> None:
        check_bounds(self, "bounds.publish", zero=("quarantine_attempts", "close_seconds"))


# A producer numbers its appends to a session 1, 2, 3 … within a *term*. Terms only grow, and the server compares them
# without trusting a clock. If this process forgets a session, it continues the session in a later term. If a session's
# head forgets a producer, the head keeps a *floor*: a new term must be above the floor.
#
# So the server refuses every late copy of an append and appends nothing twice, even if the producer or the head has
# forgotten the append's number. A producer whose term is refused checks first whether the log lost the producer's
# earlier appends. Then it continues in a term above the floor.


class Outboxes:
    """The outboxes of one producer on all servers. The outbox that was idle for longest is forgotten first."""

    def __init__(self, producer: str, most: int) -> None:
        """
        Args:
            producer: a name that no other process has.
            most: number of sessions to remember.
        """
        self.producer = producer
        self._most = most
        # If a head forgot many producers, its floor is a time shortly before now. A term that starts at the present
        # time is above that floor. If this process's clock is wrong, beginning a term costs one more round trip.
        self._term = time.time_ns() // 1_000_000
        self._outboxes: OrderedDict[str, Outbox] = OrderedDict()

    def __len__(self) -> int:
        return len(self._outboxes)

    def of(self, session: str, parked: Callable[[int], None]) -> Outbox:
        """Return the outbox of a session. `parked` is a field of a new outbox."""
        outbox = self._outboxes.get(session)
        if outbox is None:
            outbox = self._outboxes[session] = Outbox(session, parked, self._term)
        else:
            self._outboxes.move_to_end(session)
        return outbox

    def above(self, floor: int) -> int:
        """Return the number for a new term. It is above `floor` and above the numbers of all previous terms."""
        self._term = max(self._term, floor) + 1
        return self._term

    def forget(self, count: int) -> None:
        """Forget idle sessions if there are more than `PublishBounds.sessions`.

        Args:
            count: number of sessions in the last batch. At most twice as many sessions are examined, so that the cost
                stays small. A busy session is examined again later.
        """
        for _ in range(min(len(self._outboxes) - self._most, 2 * count)):
            session, outbox = self._outboxes.popitem(last=False)
            if not outbox.is_idle:
                self._outboxes[session] = outbox
            elif outbox.term >= self._term:
                self._term = outbox.term + 1


# Build the command that appends to several sessions of one server in one step. Pure.

PUBLISH = Script("publish", shares=("damage", "wake", "producers", "agents", "proofs"))


@dataclass(slots=True, eq=False)
class SessionAppend:
    """The publishes that a producer appends to one session in one step, under one number."""

    session: str
    term: int
    """term of the producer; the appends of a term are numbered from 1"""
    number: int
    publishes: list[PendingPublish]
    agent: str = ""
    """the agent that the session belongs to, as far as this process knows"""

    def settle(self, before: int, written: str, outcomes: bytes, session_bytes: int | None) -> Cursor:
        """Give the caller of each publish its outcome. Return the cursor of the session's end after this append.

        If the append handed the session over, `agent` is the new agent afterwards.

        Args:
            before: position of the session before this append.
            written: `<incarnation>@<time>` of this append; the time may be missing.
            outcomes: b"" if all publishes were appended, otherwise one word for each publish.
            session_bytes: the `PublishLimits.session_bytes` that the append was sent with.
        """
        words = outcomes.split(b" ") if outcomes else ()
        incarnation, _, time = written.partition("@")
        end = Cursor(before, 0, incarnation)
        for index, publish in enumerate(self.publishes):
            if not words or words[index] == b"a":
                count = publish.plan.message_count
                proof = proof_from(publish.plan.parts[-2], int(time)) if time else ""
                publish.succeed(end.position + 1, count, incarnation, proof)
                end = Cursor(end.position + count, 0, incarnation, proof)
                self.agent = publish.plan.conditions.assign or self.agent
            else:
                publish.end(words[index].decode(), session_bytes)
        return end


class PublishLimits(NamedTuple):
    """Limits and stream lengths that scripts/publish.lua applies."""

    session_bytes: int | None = None
    """maximum number of bytes of JSON that a session holds; None means unlimited"""
    reserve_bytes: int = 0
    """bytes beyond `session_bytes` that commands may use"""
    work: WorkBounds = WorkBounds()
    """lengths of the streams of notices and wake-ups"""
    incarnations: int = LogBounds().incarnations
    """maximum number of incarnations that a session's head lists"""
    producers: int = LogBounds().producers
    """maximum number of producers that a session's head remembers"""


def seeds_of(producer: str) -> dict[Lane, int]:
    """Return the initial value of the message checksums of `producer`, for each lane."""
    return {lane: seed_of(VERSION, producer, lane) for lane in Lane}


def publish_command(
    keys: Keys, producer: str, terms: PublishLimits, fresh: str, appends: Iterable[SessionAppend]
) -> tuple[Argument, ...]:
    """Return the command that appends to sessions of one server. scripts/publish.lua describes the reply.

    Args:
        keys: names of the keys.
        producer: name of the producer.
        terms: limits and stream lengths.
        fresh: a new unique token. If a session's log begins a new incarnation with this append, the incarnation gets
            this token.
        appends: at most one append for each session.
    """
    names: list[str] = []
    limit = "" if terms.session_bytes is None else terms.session_bytes
    work = terms.work
    arguments: list[Argument] = [producer, VERSION, *work.notice_trim, fresh, limit, terms.reserve_bytes]
    arguments += (*work.wake_up_trim, terms.incarnations, terms.producers)
    for append in appends:
        session, count = append.session, len(append.publishes)
        names += keys.appending(session)
        arguments += (session, append.agent, append.term, append.number, count)
        place, wakes, assigned = len(arguments) - 1, False, list[str]()
        for publish in append.publishes:
            plan = publish.plan
            arguments.append(plan.text)
            arguments += plan.parts
            wakes = wakes or plan.wakes
            if plan.conditions.assign is not None:
                assigned.append(plan.conditions.assign)
        if wakes:
            bucket = keys.bucket(session)
            names += keys.work(bucket, append.agent)
            names += [keys.order(bucket, agent) for agent in assigned]
            arguments[place] = -count
    return PUBLISH.command(names, arguments)


@dataclass(slots=True, eq=False)
class Trouble:
    """The problems of a session that the recovery has to solve before appends are sent directly again."""

    backoff: Backoff | None = None
    """the recovery's pauses between attempts; None if the last attempt succeeded"""
    retry_at: float = 0.0
    """time of the next attempt, on the event loop's clock"""
    doubtful: list[SessionAppend] = field(default_factory=list["SessionAppend"])
    """appends that were sent and never answered, in order"""
    waiting: list[PendingPublish] = field(default_factory=list["PendingPublish"])
    """publishes that are certainly not in the log, in the order in which to send them"""
    waiting_bytes: int = 0
    """size of the waiting publishes"""
    is_rolled_back: bool = False
    """whether the log lost its last entries. The next append number then has to be forced, see `Outbox.to_settle`"""
    is_single: bool = False
    """whether each waiting publish is sent alone, to find the publish that the server refuses for good"""
    floor: int | None = None
    """if the server refused the producer's term, the number that the next term must exceed; otherwise None"""
    foreign: Lane | None = None
    """the lane in which a foreign entry blocks appends; None if no lane is blocked"""
    moved: int = 0
    """how often foreign entries were quarantined since the last successful append"""

    @property
    def needs_settling(self) -> bool:
        """Whether append numbers have to be settled before anything else is sent, see `Outbox.to_settle`."""
        return bool(self.doubtful) or self.is_rolled_back


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


class Batch(NamedTuple):
    """The appends that are sent in one round trip."""

    appends: list[tuple[Outbox, SessionAppend]]
    size: int
    """number of publishes"""


# Recover sessions whose appends were refused or not answered, until the publisher can send to them again.


_SETTLE = Script("settle", shares=("damage", "producers"))


class _Step(NamedTuple):
    """One script call that recovery sends for one session: it repeats an append, or settles publish numbers."""

    outbox: Outbox
    script: Script
    command: Sequence[Argument]
    append: SessionAppend | None
    """None if the command settles numbers"""


class Recovery:
    """Recovers a publisher's sessions after lost replies, refusals and rollbacks. Works only while `run` runs."""

    def __init__(
        self,
        route: Route,
        keys: Keys,
        log: Log,
        *,
        outboxes: Outboxes,
        terms: PublishLimits,
        bounds: PublishBounds,
        recovered: Callable[[], None],
    ) -> None:
        """
        Args:
            outboxes: the producer's outboxes.
            terms: limits for the appends.
            bounds: pauses and batch sizes.
            recovered: function to call after a session has recovered.
        """
        self._route, self._keys, self._log = route, keys, log
        self._outboxes, self._terms, self._bounds = outboxes, terms, bounds
        self._recovered = recovered
        self._troubled: dict[str, Outbox] = {}
        self._sent: Sequence[_Step] = ()
        self._changed = asyncio.Event()
        self._connection: Connection | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether a caller waits for a publish to a session that is being recovered."""
        return any(not publish.future.done() for publish in self.publishes())

    def publishes(self) -> Iterator[PendingPublish]:
        """Yield all publishes to sessions that are being recovered."""
        for step in self._sent:
            if step.append is not None:
                yield from step.append.publishes
        for outbox in self._troubled.values():
            if (trouble := outbox.trouble) is not None:
                for append in trouble.doubtful:
                    yield from append.publishes
                yield from trouble.waiting

    def add(self, outbox: Outbox) -> None:
        """Recover a session. Call `add` again when the session's outbox has changed."""
        self._troubled[outbox.session] = outbox
        self._changed.set()

    async def run(self) -> None:
        """Recover sessions until cancelled."""
        backoff = self._backoff()
        try:
            while True:
                self._changed.clear()
                due, wait = self._due()
                if not due:
                    with anyio.move_on_after(wait):
                        await self._changed.wait()
                    continue
                try:
                    await self._step_all(due)
                    backoff.reset()
                except Unavailable as fault:
                    self._explain(fault)
                    await backoff.wait()
        finally:
            if self._connection is not None:
                await self._connection.close()

    def _due(self) -> tuple[list[Outbox], float | None]:
        """Return the sessions to handle now, and the seconds until another session is due.

        The seconds are None if no other session will be due.
        """
        now = anyio.current_time()
        due: list[Outbox] = []
        next_at: float | None = None
        for session, outbox in list(self._troubled.items()):
            if (trouble := outbox.trouble) is None or outbox.end_trouble_if_settled():
                del self._troubled[session]
                self._recovered()
            elif outbox.in_flight:
                pass  # the reply to the append in flight has to come first
            elif trouble.retry_at > now:
                next_at = trouble.retry_at if next_at is None else min(next_at, trouble.retry_at)
            elif len(due) < self._bounds.recovery_sessions:
                due.append(outbox)
        for outbox in due:  # move to the end, or sessions whose callers keep publishing would starve other sessions
            self._troubled[outbox.session] = self._troubled.pop(outbox.session)
        return due, None if next_at is None else next_at - now

    async def _step_all(self, due: Sequence[Outbox]) -> None:
        """Send one script call for each of the sessions `due`, and handle the replies.

        Raises:
            Unavailable: the server did not answer.
        """
        connection = await self._connected()
        await self._quarantine(due)
        await self._begin_terms(due)
        steps = [step for outbox in due if (step := self._step(outbox)) is not None]
        if not steps:
            return
        self._sent = steps
        try:
            replies = await send_scripts(connection, [(step.script, step.command) for step in steps])
        except BaseException:
            for step in steps:
                if step.append is not None:
                    step.outbox.lose(step.append)
            raise
        finally:
            self._sent = ()
        for step, reply in zip(steps, replies, strict=True):
            self._handle_reply(step, reply, connection)

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_broken:
            if self._connection is not None:
                await self._connection.close()
            self._connection = await self._route.connect()
        return self._connection

    async def _quarantine(self, due: Sequence[Outbox]) -> None:
        """Quarantine foreign entries that are at the positions of the next appends."""
        for outbox in due:
            if (trouble := outbox.trouble) is not None and trouble.foreign is not None:
                try:
                    ids = await self._log.quarantine(outbox.session, trouble.foreign)
                except HeadMissing as missing:
                    outbox.fail_waiting(missing)
                except (Refused, StreamError) as fault:
                    self._explain(fault, outbox)
                    self._delay(trouble)
                else:
                    outbox.give_way(self._bounds.quarantine_attempts, ids)

    async def _begin_terms(self, due: Sequence[Outbox]) -> None:
        """Begin a new term for each session in which the server refused the producer's term."""
        for outbox in due:
            trouble = outbox.trouble
            if trouble is None or trouble.floor is None or trouble.doubtful:
                continue
            position = outbox.position
            if position:
                try:
                    head = await self._log.head(outbox.session)
                    position = position if head.is_erased else await common_position(self._log, head, outbox.cursor)
                except HeadMissing:  # as of an empty session: the append finds the entries, and they are judged there
                    position = 0
                except CursorTrimmed:  # the entry that could prove a loss was trimmed: assume that nothing was lost
                    pass
                except (Refused, StreamError) as fault:
                    self._explain(fault, outbox)
                    self._delay(trouble)
                    continue
            outbox.begin(self._outboxes.above(trouble.floor), position)

    def _step(self, outbox: Outbox) -> _Step | None:
        trouble = outbox.trouble
        if trouble is None or outbox.in_flight or trouble.foreign is not None:
            return None
        if trouble.floor is not None and not trouble.doubtful:
            return None
        if trouble.needs_settling:
            first, last, is_forced = outbox.to_settle()
            kept = self._terms.producers
            arguments = (self._outboxes.producer, outbox.term, first, last, "1" if is_forced else "", kept)
            lanes = (self._keys.lane(outbox.session, lane) for lane in Lane)
            names = (self._keys.head(outbox.session), *lanes)
            return _Step(outbox, _SETTLE, _SETTLE.command(names, arguments), None)
        batch = outbox.next_batch(self._bounds.batch_count, self._bounds.batch_bytes)
        if not batch:
            return None
        append = outbox.send(batch)
        command = publish_command(self._keys, self._outboxes.producer, self._terms, token_urlsafe(6), (append,))
        return _Step(outbox, PUBLISH, command, append)

    def _handle_reply(self, step: _Step, reply: Reply | Refused, connection: Connection) -> None:
        outbox, refusal = step.outbox, reply if isinstance(reply, Refused) else None
        number = outbox.answered
        if step.append is not None:
            (word,) = (None,) if refusal is not None else cast("Sequence[bytes]", reply)
            redirect = outbox.answer(step.append, refusal or word, self._terms.session_bytes)
            if redirect is not None:
                connection.note_redirect(redirect)
        elif refusal is None:
            outbox.settled(cast("Sequence[bytes]", reply), self._terms.session_bytes)
        else:
            self._explain(refusal, outbox)
            outbox.prune()
        if (trouble := outbox.trouble) is not None:
            if outbox.answered > number:
                trouble.backoff, trouble.retry_at = None, 0.0
            else:
                self._delay(trouble)
        self._changed.set()

    def _delay(self, trouble: Trouble) -> None:
        trouble.backoff = trouble.backoff or self._backoff()
        trouble.retry_at = anyio.current_time() + trouble.backoff.advance()

    def _backoff(self) -> Backoff:
        return Backoff(self._bounds.first_pause_seconds, self._bounds.longest_pause_seconds)

    def _explain(self, fault: BusError, only: Outbox | None = None) -> None:
        """Set `fault` as the reason of waiting publishes, so that `PendingPublish.expire` raises it.

        Args:
            fault: the error.
            only: the outbox with these publishes; None means all outboxes in trouble.
        """
        for outbox in self._troubled.values() if only is None else (only,):
            for publish in outbox.trouble.waiting if outbox.trouble is not None else ():
                publish.reason = fault
